"""One client's bytes, on both kinds of streams: a socket of our own, and an event loop's transport."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.support.patience import patient

from busway_bus.log.descriptors import Descriptors
from busway_bus.log.file_slice import FileSlice
from busway_bus.log.os_files import OsFile
from busway_bus.server import acceptor as acceptor_module
from busway_bus.server import page_cache
from busway_bus.server.acceptor import SocketAcceptor
from busway_bus.server.socket_stream import SENDFILE_BYTES_MIN, SocketStream
from busway_bus.server.stream import Shared, Stream
from busway_bus.server.transport_stream import TransportStream

MIB = 1024 * 1024
FILE_BYTES = 8 * MIB


class Connection:
    """What a stream tells."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        stream.owner = self
        self.scratch = memoryview(bytearray(1000))
        self.came = bytearray()
        self.over = asyncio.Event()
        self.something = asyncio.Event()
        self.problem: OSError | None = None
        self.is_its_turn = True
        self.later: list[Callable[[], None]] = []

    def buffer(self) -> memoryview:
        """A small one."""
        return self.scratch

    def received(self, count: int) -> None:
        """Keep it."""
        self.came += self.scratch[:count]
        self.something.set()

    def may_read(self, later: Callable[[], None]) -> bool:
        """As the test says."""
        if not self.is_its_turn:
            self.later.append(later)
        return self.is_its_turn

    def write_on(self) -> None:
        """Go on."""
        self.stream.write()

    def unreadable(self, problem: OSError) -> None:
        """The end."""
        self.problem = problem
        self.stream.abort()

    def cut_off(self) -> None:
        """The end."""
        self.stream.abort()

    def lost(self) -> None:
        """Note the end of the connection."""
        self.over.set()


class CountingSocket(socket.socket):
    """Counts what is sent in one call."""

    calls = 0

    def sendmsg(self, *args: object) -> int:  # type: ignore[override]  # passes on what it is given
        """One more."""
        self.calls += 1
        return super().sendmsg(*args)  # type: ignore[arg-type]


class Pair:
    """A stream and its client's socket."""

    def __init__(self, connection: Connection, client: socket.socket, near: CountingSocket) -> None:
        self.connection, self.client, self.near = connection, client, near
        self.stream = connection.stream

    async def read(self, count: int) -> bytes:
        """So many bytes, or those up to the end."""
        data = bytearray()
        while len(data) < count:
            part = await asyncio.get_running_loop().sock_recv(self.client, min(count - len(data), MIB))
            if not part:
                break
            data += part
        return bytes(data)


@pytest.fixture(params=["socket", "transport"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    """Both ends of a connection whose buffers are small."""
    shared, made = Shared(), []
    near_end, client = socket.socketpair()
    near = CountingSocket(fileno=near_end.detach())
    for end in (near, client):
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 * 1024)
    if request.param == "socket":
        made.append(Connection(SocketStream(near, "client", shared)))
        made[0].stream.resume_reading()
    else:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: TransportStream(lambda stream: made.append(Connection(stream)), shared), near
        )
    yield Pair(made[0], client, near)
    client.close()
    if not made[0].over.is_set():
        made[0].stream.abort()
        await made[0].over.wait()
    shared.pages.close()


@pytest.fixture(scope="module")
def content() -> bytes:
    """Bytes of which no two parts are alike."""
    return random.Random(1).randbytes(FILE_BYTES)


@pytest.fixture
def part(tmp_path: Path, content: bytes) -> Callable[[int, int], FileSlice]:
    """Parts of a file."""
    file = OsFile(tmp_path / "log", Descriptors(64))
    file.append([content])

    def slice_of(position: int, size: int) -> FileSlice:
        return FileSlice(file.lend(), position, size)

    return slice_of


async def test_bytes_and_parts_of_files_come_in_order(
    pair: Pair, part: Callable[[int, int], FileSlice], content: bytes
) -> None:
    """Small and large ones, between and behind others, for a client that reads them slowly."""
    sizes = [1, SENDFILE_BYTES_MIN - 1, SENDFILE_BYTES_MIN, 3 * MIB, 10, 100_000, 5 * MIB]
    expected = bytearray()
    for at, size in enumerate(sizes):
        position = at * 1000
        pair.stream.put([b"head" * at, part(position, size), b"" if at % 2 else b"tail"])
        expected += b"head" * at + content[position : position + size] + (b"" if at % 2 else b"tail")
    assert pair.stream.waiting
    assert await pair.read(len(expected)) == expected
    assert not pair.stream.waiting


async def test_what_is_not_taken_stays_in_its_file(pair: Pair, part: Callable[[int, int], FileSlice]) -> None:
    """8 MiB for a client that takes nothing: a slice is in memory where a transport needs it, nothing where it is our socket."""
    pair.stream.put([b"head", part(0, FILE_BYTES), b"tail"])
    memory = pair.stream._memory
    await asyncio.sleep(0)
    assert memory.used <= (4 if isinstance(pair.stream, SocketStream) else MIB + 8)
    await pair.read(FILE_BYTES + 8)
    assert memory.used == 0


async def test_small_parts_go_out_together(pair: Pair, part: Callable[[int, int], FileSlice]) -> None:
    """A fetch of thirty partitions is one call of the system, as far as it is ours to make."""
    pair.near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MIB)
    pair.stream.put([piece for _ in range(30) for piece in (b"partition", part(0, 2_000))])
    assert pair.near.calls <= 1
    assert len(await pair.read(30 * 2_009)) == 30 * 2_009


async def test_what_comes_is_handed_on_until_it_is_too_much(pair: Pair) -> None:
    """A paused stream takes nothing in; afterwards all of it is there."""
    pair.client.send(b"x" * 2_500)
    await pair.connection.something.wait()
    pair.stream.pause_reading()
    before = len(pair.connection.came)
    pair.client.send(b"y" * 2_500)
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(pair.connection.came) - before <= 2_500 - before
    pair.stream.resume_reading()
    while len(pair.connection.came) < 5_000:
        pair.connection.something.clear()
        await pair.connection.something.wait()
    assert pair.connection.came == b"x" * 2_500 + b"y" * 2_500


async def test_who_sends_no_more_still_gets_what_is_queued(pair: Pair, part: Callable[[int, int], FileSlice]) -> None:
    """A half-closed client reads its answer to the end, which is the end of the connection too."""
    pair.stream.put([b"head", part(0, FILE_BYTES)])
    pair.client.shutdown(socket.SHUT_WR)
    async with asyncio.timeout(patient(10)):
        assert len(await pair.read(FILE_BYTES + 5)) == FILE_BYTES + 4
        await pair.connection.over.wait()


async def test_a_client_that_goes_leaves_nothing_behind(pair: Pair, part: Callable[[int, int], FileSlice]) -> None:
    """Its answer, and what was counted of it."""
    pair.stream.put([b"head" * 100_000, part(0, FILE_BYTES)])
    assert pair.stream._memory.used
    pair.client.close()
    async with asyncio.timeout(patient(10)):
        await pair.connection.over.wait()
    assert not pair.stream.waiting
    assert not pair.stream._memory.used


@pytest.mark.parametrize("size", [1_000, MIB])
async def test_a_file_that_became_shorter_ends_the_answer(
    pair: Pair, part: Callable[[int, int], FileSlice], size: int
) -> None:
    """What is missing cannot be made up: the connection learns of it, whichever way the bytes would have gone."""
    pair.stream.put([b"head", part(FILE_BYTES - 10, size)])
    async with asyncio.timeout(patient(10)):
        reading = asyncio.ensure_future(pair.read(size))
        await pair.connection.over.wait()
        await reading
    assert str(pair.connection.problem).startswith(f"a log file ends at byte {FILE_BYTES}, ")


async def test_pages_that_are_on_disk_are_brought_beside_the_loop(
    pair: Pair, part: Callable[[int, int], FileSlice], content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent and the loop goes on until a thread has them; then everything comes, each page brought once."""
    brought: list[tuple[int, int]] = []
    gate = asyncio.Event()
    bring = page_cache.PageCache.bring

    def held(pages: page_cache.PageCache, piece: FileSlice, count: int, done: Callable[..., None]) -> None:
        brought.append((piece.position, count))

        async def later() -> None:
            await gate.wait()
            bring(pages, piece, count, done)

        tasks.append(asyncio.ensure_future(later()))

    tasks: list[asyncio.Task[None]] = []
    monkeypatch.setattr(FileSlice, "in_memory", lambda piece, count: False)
    monkeypatch.setattr(page_cache.PageCache, "bring", held)
    pair.stream.put([part(0, 2 * MIB), b"tail"])
    with pytest.raises(BlockingIOError):
        pair.client.recv(1)
    gate.set()
    async with asyncio.timeout(patient(10)):
        assert await pair.read(2 * MIB + 4) == content[: 2 * MIB] + b"tail"
    await asyncio.gather(*tasks)
    ends = [position + count for position, count in brought]
    assert ends[-1] == 2 * MIB
    assert all(position >= end for (position, _), end in zip(brought[1:], ends, strict=False))


@pytest.mark.parametrize("size", [-1, 64 * 1024])
async def test_who_comes_has_the_send_buffer_of_the_listener(size: int) -> None:
    """Linux doubles a given size; without one the option is not set."""
    came: asyncio.Queue[Stream] = asyncio.Queue()
    door = SocketAcceptor(came.put_nowait, Shared(), backlog=8, send_buffer_bytes=size)
    with socket.socket() as untold:
        untold_bytes = untold.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    port = await door.bind("127.0.0.1", 0)
    assert (door._sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == untold_bytes) == (size < 0)
    await door.serve()
    with socket.create_connection(("127.0.0.1", port)):
        async with asyncio.timeout(patient(10)):
            stream = await came.get()
        assert isinstance(stream, SocketStream)
        if size > 0:
            assert size <= stream._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * size
        connection = Connection(stream)
        stream.abort()
        await connection.over.wait()
    door.close()


async def test_a_paused_client_costs_nothing_until_it_sends(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between its requests change nothing in what the loop watches; what it sends in one is taken in afterwards, once."""
    loop = asyncio.get_running_loop()
    changes: list[str] = []
    for name in ("add_reader", "remove_reader"):
        change = getattr(loop, name)
        monkeypatch.setattr(loop, name, lambda *args, name=name, change=change: (changes.append(name), change(*args)))
    pair.stream.resume_reading()
    for _ in range(3):
        pair.stream.pause_reading()
        pair.stream.resume_reading()
    assert changes == []
    pair.stream.pause_reading()
    pair.client.send(b"x" * 100)
    for _ in range(10):
        await asyncio.sleep(0)
    assert pair.connection.came == b""
    assert changes.count("add_reader") == 0
    pair.stream.resume_reading()
    async with asyncio.timeout(patient(10)):
        await pair.connection.something.wait()
    assert pair.connection.came == b"x" * 100


@pytest.mark.parametrize("pair", ["socket"], indirect=True)
async def test_what_comes_waits_for_its_turn(pair: Pair) -> None:
    """It is asked for one turn, however often the loop sees that something is there and reading pauses; then all of it comes."""
    pair.connection.is_its_turn = False
    pair.client.send(b"x" * 100)
    for _ in range(10):
        await asyncio.sleep(0)
    pair.stream.pause_reading()
    pair.stream.resume_reading()
    for _ in range(10):
        await asyncio.sleep(0)
    (turn,) = pair.connection.later
    assert pair.connection.came == b""
    pair.stream.pause_reading()
    pair.connection.is_its_turn = True
    turn()
    assert pair.connection.came == b"", "it is not read from at all"
    pair.stream.resume_reading()
    async with asyncio.timeout(patient(10)):
        await pair.connection.something.wait()
    assert pair.connection.came == b"x" * 100


@pytest.mark.parametrize("pair", ["socket"], indirect=True)
async def test_a_turn_comes_when_the_client_is_gone(pair: Pair) -> None:
    """Nothing is read from a socket that may be another connection's by now."""
    pair.connection.is_its_turn = False
    pair.client.send(b"x")
    while not pair.connection.later:
        await asyncio.sleep(0)
    pair.stream.abort()
    pair.connection.later[0]()
    await pair.connection.over.wait()
    assert pair.connection.came == b""


async def test_without_descriptors_who_comes_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop does not spin and the listener survives: once there are some again, the client is let in."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(acceptor_module, "ACCEPT_RETRY_MS", 1)
    came: asyncio.Queue[Stream] = asyncio.Queue()
    door = SocketAcceptor(came.put_nowait, Shared(), backlog=8)
    port = await door.bind("127.0.0.1", 0)
    await door.serve()
    (bound,) = door._sockets
    exhausted = Exhausted(bound)
    door._sockets = [exhausted]  # type: ignore[list-item]
    loop.remove_reader(bound.fileno())
    loop.add_reader(bound.fileno(), door._accept_batch, exhausted)
    with socket.create_connection(("127.0.0.1", port)):
        async with asyncio.timeout(patient(10)):
            stream = await came.get()
        assert exhausted.refused == 3
        assert caplog.text.count("no client can be let in for 1 ms: Too many open files") == 3
        connection = Connection(stream)
        stream.abort()
        await connection.over.wait()
    door.close()


class Exhausted:
    """A listening socket in a process that has no descriptors left for three of its tries."""

    def __init__(self, bound: socket.socket) -> None:
        self._bound = bound
        self.refused = 0

    def accept(self) -> tuple[socket.socket, object]:
        """Not yet."""
        if self.refused < 3:
            self.refused += 1
            raise OSError(24, "Too many open files")
        return self._bound.accept()

    def fileno(self) -> int:
        """Its own."""
        return self._bound.fileno()

    def close(self) -> None:
        """Its own."""
        self._bound.close()
