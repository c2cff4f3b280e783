"""Fencing of brokers that are gone, by the active controller.

Here: the periodic check of sessions; noticing at once that a broker's process is gone.
Not here: which sessions are over (`controller.heartbeats`), the records (`controller.brokers`).

A broker sends its heartbeats on one connection. When that ends, or a new controller has none from a broker, the broker's
listener is probed. Refused connections show that the process is gone: its partitions get other leaders without waiting
for the session's end. So does an address or a name that is no more, as of a killed container, if this node has reached
the listener since the broker registered, and in this leadership the broker's end of the connection was closed without a
reset, and did not come back: a cut network closes none. Anything else shows nothing, since a network may be cut or a
process may stand still.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from busway.net.probing import is_absent, is_reached, is_refused
from busway_bus.controller.controller import ITSELF, Command, Controller
from busway_bus.controller.heartbeats import check_interval_ms
from busway_bus.controller.lost_brokers import FenceBroker, FenceStaleBrokers
from busway_bus.handlers.common.context import Peer
from busway_bus.metadata.image import Address
from busway_bus.quorum.metadata_log import MetadataLog
from busway_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("busway.controller")

R = TypeVar("R")
PROBE_S: Final = 0.5
"""Bound of a probe, and pause between probes of a broker without a connection."""
AGAIN_S: Final = 0.1
"""Pause before the second probe: a dying process closes its connections before its listeners, or after. Also the first
pause of a leadership."""
_MOVED: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT})
"""Errors after which another controller, or a later check, fences."""


class Fencing:
    """Fences brokers that are gone, while this node leads.

    Args:
        listener: the name of the listener that is probed; the first one where a broker does not have it.
    """

    def __init__(self, controller: Controller, metadata: MetadataLog, *, session_ms: int, listener: str) -> None:
        self._controller, self._metadata = controller, metadata
        self._session_ms, self._listener = session_ms, listener
        self._connections: dict[int, Peer] = {}
        self._closed_in: dict[int, tuple[int, int]] = {}
        """Leadership, and epoch of the broker, of a last connection that the broker's end closed."""
        self._reached: dict[int, int] = {}
        """Epochs of brokers whose listeners were reached from here."""
        self._deciding: list[tuple[Peer, int, int]] = []
        """Heartbeats that are not decided yet: connection, broker, epoch."""
        self._running: dict[tuple[str, int], asyncio.Task[None]] = {}

    @contextmanager
    def deciding(self, peer: Peer, node_id: int, epoch: int) -> Iterator[None]:
        """See `Liveness`: the decision may take longer than the broker's patience with its last connection."""
        heartbeat = (peer, node_id, epoch)
        self._deciding.append(heartbeat)
        try:
            yield
        finally:
            self._deciding.remove(heartbeat)

    def received(self, peer: Peer, node_id: int, epoch: int) -> None:
        """Note the connection of a broker's heartbeat."""
        if peer.gone:
            return  # it ended while the heartbeat was decided
        self._connections[node_id] = peer
        self._closed_in.pop(node_id, None)
        peer.when_closed = partial(self._closed, peer, node_id, (self._metadata.leadership, epoch))
        if self._reached.get(node_id) != epoch:
            self._begin(self._reach, node_id, epoch)

    def _closed(self, peer: Peer, node_id: int, closed_in: tuple[int, int], by_client: bool) -> None:
        if self._connections.get(node_id) is peer:
            del self._connections[node_id]
            if by_client:
                if not peer.was_reset:
                    self._closed_in[node_id] = closed_in
                self._begin(self._probe, node_id, closed_in[1])

    def _begin(self, work: Callable[[int, int], Coroutine[Any, Any, None]], node_id: int, epoch: int) -> None:
        key = (work.__name__, node_id)
        if key not in self._running:
            task = self._running[key] = asyncio.ensure_future(work(node_id, epoch))
            task.add_done_callback(lambda _: self._running.pop(key, None))

    async def _reach(self, node_id: int, epoch: int) -> None:
        address = self._address(node_id, epoch)
        if address is not None and await is_reached(address.host, address.port, PROBE_S):
            self._reached[node_id] = epoch

    async def _probe(self, node_id: int, epoch: int) -> None:
        for pause_s in (0.0, AGAIN_S):
            await asyncio.sleep(pause_s)
            if not self._is_missing(node_id, epoch) or (address := self._address(node_id, epoch)) is None:
                return
            # a live broker without a name for a moment is back before
            may_be_absent = pause_s > 0 and self._may_be_absent(node_id, epoch)
            is_gone = await (is_absent if may_be_absent else is_refused)(address.host, address.port, PROBE_S)
            if may_be_absent and not self._may_be_absent(node_id, epoch):
                return  # it was back meanwhile; another end of a connection shows something else
            if is_gone and self._is_missing(node_id, epoch):
                if await self._decided(FenceBroker(node_id=node_id, epoch=epoch)):
                    logger.warning("broker %d is fenced: its process is gone", node_id)
                return

    def _may_be_absent(self, node_id: int, epoch: int) -> bool:
        """Whether an address without a host, or a name without an address, shows that the broker is gone."""
        closed_in = self._closed_in.get(node_id)
        return self._reached.get(node_id) == epoch and closed_in == (self._metadata.leadership, epoch)

    def _is_missing(self, node_id: int, epoch: int) -> bool:
        """Whether this node leads, and has no connection from a broker of that epoch."""
        broker = self._metadata.image.brokers.get(node_id)
        is_current = broker is not None and broker.epoch == epoch
        is_connected = node_id in self._connections or any(
            heartbeat[1:] == (node_id, epoch) and not heartbeat[0].gone for heartbeat in self._deciding
        )
        return self._metadata.writer.leading and is_current and not is_connected

    def _address(self, node_id: int, epoch: int) -> Address | None:
        broker = self._metadata.image.brokers.get(node_id)
        if broker is None or broker.epoch != epoch:
            return None
        return broker.addresses.get(self._listener) or next(iter(broker.addresses.values()), None)

    async def watch_connections(self) -> None:
        """Probe unfenced brokers without a connection, soon after a leadership began; runs until cancelled."""
        loop, leadership, due_s = asyncio.get_running_loop(), -1, 0.0
        while True:
            await asyncio.sleep(AGAIN_S)
            if not self._metadata.writer.leading:
                continue
            if self._metadata.leadership != leadership or loop.time() >= due_s:
                leadership, due_s = self._metadata.leadership, loop.time() + PROBE_S
                for broker in self._metadata.image.usable_brokers():
                    if broker.node_id not in self._connections:
                        self._begin(self._probe, broker.node_id, broker.epoch)

    async def watch_sessions(self) -> None:
        """Fence brokers whose sessions are over; runs until cancelled."""
        while True:
            await asyncio.sleep(check_interval_ms(self._session_ms) / 1000)
            if self._metadata.writer.leading:
                for node_id in await self._decided(FenceStaleBrokers()) or ():
                    logger.warning("broker %d is fenced: it sent no heartbeat for %d ms", node_id, self._session_ms)

    async def _decided(self, command: Command[R]) -> R | None:
        try:
            return await self._controller.request(command, ITSELF)
        except KafkaError as problem:
            if problem.code not in _MOVED:
                logger.error("a broker that is gone cannot be fenced yet: %s", problem)
            return None

    def close(self) -> None:
        for task in tuple(self._running.values()):
            task.cancel()
