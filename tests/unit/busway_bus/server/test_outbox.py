"""What a connection's answers take while nobody reads them, and who has to go when all of them take too much."""

import asyncio
from typing import Any

from busway_bus.log.file_slice import FileSlice
from busway_bus.server.outbox import Outbox, ResponseMemory

MIB = 1024 * 1024


class Disk:
    """A file of endless zeros that counts what is read of it."""

    def __init__(self) -> None:
        self.read_bytes = 0

    def read(self, position: int, size: int) -> bytes:
        """Zeros."""
        self.read_bytes += size
        return bytes(size)


class Socket(asyncio.WriteTransport):
    """A client that takes what the test lets it take."""

    def __init__(self) -> None:
        super().__init__()
        self.unsent = 0
        self.sent = bytearray()
        self.writes = 0
        self.outbox: Outbox | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As they are told."""
        self.high = high or 0

    def get_write_buffer_size(self) -> int:
        """What the client has not taken."""
        return self.unsent

    def writelines(self, list_of_data: Any) -> None:
        """Keep it all back."""
        for data in list_of_data:
            self.unsent += len(data)
            self.sent += data
        self.writes += 1
        assert self.outbox is not None
        self.outbox.paused = self.unsent > self.high

    def take(self) -> None:
        """The client takes everything."""
        assert self.outbox is not None
        self.unsent = 0
        self.outbox.paused = False
        self.outbox.write()


class Peer:
    """A connection with its outbox."""

    def __init__(self, memory: ResponseMemory) -> None:
        self.socket = Socket()
        self.alive = True
        self.outbox = Outbox(self.socket, memory, write_on=self.write_on, cut_off=self.cut_off)
        self.socket.outbox = self.outbox

    def write_on(self) -> None:
        """Its turn."""
        self.outbox.write()

    def cut_off(self) -> None:
        """The end."""
        self.alive = False


async def test_a_slice_of_an_answer_is_in_memory_and_the_rest_in_its_file() -> None:
    """50 MB for a client that takes nothing: a megabyte is read; what it takes is read when it takes it, in order."""
    memory, disk = ResponseMemory(), Disk()
    peer = Peer(memory)
    peer.outbox.put([b"head", FileSlice(disk, 0, 50 * MIB), b"tail"])
    assert disk.read_bytes == MIB
    assert memory.used == MIB + len(b"headtail")
    while peer.outbox:
        peer.socket.take()
        await asyncio.sleep(0)
    assert disk.read_bytes == 50 * MIB
    assert peer.socket.sent[:4] == b"head"
    assert peer.socket.sent[-4:] == b"tail"
    assert len(peer.socket.sent) == 50 * MIB + 8
    assert memory.used == 0


async def test_many_small_slices_go_out_together() -> None:
    """A fetch of fifty partitions is one write."""
    memory, disk = ResponseMemory(), Disk()
    peer = Peer(memory)
    peer.outbox.put([piece for _ in range(50) for piece in (b"partition", FileSlice(disk, 0, 10_000))])
    assert peer.socket.writes == 1


async def test_the_loop_looks_for_requests_between_turns() -> None:
    """A hundred clients that take everything at once do not get it in one turn of the loop, and all get it in the end."""
    memory, disk = ResponseMemory(), Disk()
    many = [Peer(memory) for _ in range(100)]
    for peer in many:
        peer.socket.high = 100 * MIB
        peer.outbox.put([FileSlice(disk, 0, MIB)])
    assert disk.read_bytes <= 4 * MIB
    turns = 0
    while any(peer.outbox for peer in many):
        before = disk.read_bytes
        await asyncio.sleep(0)
        assert disk.read_bytes - before <= 4 * MIB
        turns += 1
    assert turns >= 24


async def test_who_takes_nothing_for_longest_goes_first(monkeypatch: Any) -> None:
    """Answers that are no slices are in memory whole: beyond the limit the stalest client is cut off, not the newest."""
    now = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    memory = ResponseMemory(4 * MIB)
    stale, slow, fresh = Peer(memory), Peer(memory), Peer(memory)
    slow.outbox.put([bytes(MIB)])
    stale.outbox.put([bytes(MIB)])
    now += 5
    slow.socket.unsent //= 2
    slow.outbox.look(now)
    stale.outbox.look(now)
    now += 1
    fresh.outbox.taken_at = now
    fresh.outbox.put([bytes(2 * MIB + 1)])
    assert [peer.alive for peer in (stale, slow, fresh)] == [False, True, True]
    assert memory.used <= 4 * MIB


async def test_slices_are_small_where_many_do_not_read() -> None:
    """Two thousand clients that read nothing take less than the limit, and nobody is cut off."""
    memory, disk = ResponseMemory(), Disk()
    many = [Peer(memory) for _ in range(2_000)]
    for peer in many:
        peer.outbox.put([FileSlice(disk, 0, 50 * MIB)])
    while any(not peer.outbox.paused for peer in many):
        await asyncio.sleep(0)
    assert all(peer.alive for peer in many)
    assert memory.used <= 96 * MIB
    for peer in many:
        peer.outbox.clear()
    assert memory.used == 0
