"""A network that can fail, between a client and a broker: connections are cut, refused, held, and answers lost, when a test says so.

Here: `Proxy`, which stands in front of one broker, Busway's or Apache Kafka's, and knows the frames of the protocol, so
that a test names the request whose answer is lost. Clients that begin at the proxy stay there: brokers' addresses in
answers become its own.
Not here: what a client should make of it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Final

from busway_bus.testing.ports import HeldPort
from busway_protocol.apis import ApiKey, api, response_header_version
from busway_protocol.compile import decode, decode_from, encode
from busway_protocol.headers import ResponseHeader

_SIZE: Final = 4
_ADDRESSED: Final = frozenset({ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER})


class Fate(Enum):
    """What becomes of a frame."""

    SWALLOW = "it vanishes, the connection goes on"
    CUT = "the connection ends instead"
    HOLD = "it waits, and all behind it on its connection, until the strike is lifted"


@dataclass(slots=True, eq=False)
class Strike:
    """A fault that is armed.

    Attributes:
        key: of the requests concerned, or whose answers are; None for all but ApiVersions.
        answers: whether it strikes answers; else requests, which then never reach the broker.
        times: how often; None until it is lifted.
        happened: set when it has struck.
        count: how often it has.
    """

    key: ApiKey | None
    fate: Fate
    answers: bool
    times: int | None
    happened: asyncio.Event = field(default_factory=asyncio.Event)
    lifted: asyncio.Event = field(default_factory=asyncio.Event)
    count: int = 0

    def lift(self) -> None:
        """It strikes no more, and what it holds goes on."""
        self.lifted.set()

    def strikes(self, key: int, *, answer: bool) -> bool:
        """Whether it concerns a frame; counts it if it does."""
        concerned = key == self.key or (self.key is None and key != ApiKey.API_VERSIONS)
        if self.lifted.is_set() or answer is not self.answers or not concerned or self.count == self.times:
            return False
        self.count += 1
        self.happened.set()
        return True


@dataclass(slots=True, eq=False)
class _Link:
    """A client's connection and its twin to the broker; `asked`: correlation id → API key and version."""

    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    asked: dict[int, tuple[int, int]] = field(default_factory=dict)

    def cut(self) -> None:
        self.client.transport.abort()
        self.broker.transport.abort()


class Proxy:
    """A door to a broker.

        async with LocalCluster() as node, Proxy(node.bootstrap_servers) as proxy, Producer(proxy.address) as producer:
            lost = proxy.strike(Fate.CUT, ApiKey.PRODUCE, answers=True, times=1)
            await producer.send_and_wait("t", b"v")
            assert lost.count == 1

    Args:
        target: `host:port` of the broker.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.edits: dict[int, Callable[[Any], None]] = {}
        """By API: changes an answer in place, after brokers' addresses have become this one's."""
        self.requests: list[int] = []
        """Every request that has come, in order, those included that were struck."""
        self.sizes: dict[int, list[int]] = {}
        """Bytes of every request that has come, by API, in order."""
        self._strikes: list[Strike] = []
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._came = asyncio.Condition()
        self._held = HeldPort()  # while it refuses connections, too
        self.port = self._held.number

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    # Faults

    def strike(
        self, fate: Fate, key: ApiKey | None = None, *, answers: bool = False, times: int | None = None
    ) -> Strike:
        """Arm a fault; see `Strike`."""
        armed = Strike(key, fate, answers, times)
        self._strikes.append(armed)
        return armed

    def cut(self) -> None:
        """End every connection; new ones are taken."""
        for link in tuple(self._links):
            link.cut()

    async def refuse(self) -> None:
        """As a broker whose process is gone: connections end, new ones are refused."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self.cut()
        await self._ended()

    async def accept(self) -> None:
        """Take connections, at the same address as before."""
        self._server = await asyncio.start_server(self._came_in, "127.0.0.1", self.port)

    async def asked(self, key: ApiKey, times: int = 1) -> None:
        """Return when so many requests of an API have come, since the beginning."""
        async with self._came:
            await self._came.wait_for(lambda: self.requests.count(key) >= times)

    async def __aenter__(self) -> "Proxy":
        await self.accept()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for strike in self._strikes:
            strike.lift()
        await self.refuse()

    # Forwarding

    async def _ended(self) -> None:
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _came_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            answers, broker = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, broker)
        self._links.add(link)
        pumps = [
            asyncio.ensure_future(self._forward(link, reader, broker, self._request)),
            asyncio.ensure_future(self._forward(link, answers, writer, self._answer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)
            link.cut()
            self._links.discard(link)

    async def _forward(
        self,
        link: _Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        look: Callable[[_Link, bytes], Any],
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = await reader.readexactly(_SIZE)
                frame = await look(link, await reader.readexactly(int.from_bytes(size, "big")))
                if frame is not None:
                    writer.write(len(frame).to_bytes(_SIZE, "big") + frame)
                    await writer.drain()

    async def _request(self, link: _Link, frame: bytes) -> bytes | None:
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        link.asked[int.from_bytes(frame[4:8], "big")] = key, version
        async with self._came:
            self.requests.append(key)
            self.sizes.setdefault(key, []).append(len(frame))
            self._came.notify_all()
        return frame if await self._spared(link, key, answer=False) else None

    async def _answer(self, link: _Link, frame: bytes) -> bytes | None:
        key, version = link.asked.pop(int.from_bytes(frame[:4], "big"))
        if not await self._spared(link, key, answer=True):
            return None
        edit = self.edits.get(key)
        if edit is None and key not in _ADDRESSED:
            return frame
        head = response_header_version(ApiKey(key), version)
        header, position = decode_from(ResponseHeader, head, memoryview(frame), 0)
        message = decode(api(ApiKey(key)).response, version, memoryview(frame), position)
        for broker in _brokers(key, version, message):
            broker.host, broker.port = "127.0.0.1", self.port
        if edit is not None:
            edit(message)
        return encode(header, head) + encode(message, version)

    async def _spared(self, link: _Link, key: int, *, answer: bool) -> bool:
        for strike in self._strikes:
            if strike.strikes(key, answer=answer):
                if strike.fate is Fate.HOLD:
                    await strike.lifted.wait()
                    continue
                if strike.fate is Fate.CUT:
                    link.cut()
                return False
        return True


def _brokers(key: int, version: int, message: Any) -> list[Any]:
    """Whatever in an answer has a broker's address."""
    if key == ApiKey.FIND_COORDINATOR:
        addresses = message.coordinators if version >= 4 else [message]
        return [address for address in addresses if address.port > 0]
    return list(message.brokers) if key in _ADDRESSED else []
