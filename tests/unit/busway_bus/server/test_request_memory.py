"""Whose turn it is when the memory for requests is used up."""

from busway_bus.kernel.limits import REQUEST_BYTES_FREE, REQUEST_BYTES_LARGE
from busway_bus.server.request_memory import ConnectionQuota, RequestMemory

MIB = 1024 * 1024
LARGE = REQUEST_BYTES_LARGE + 1


class Peer:
    """A connection that notes whether it may go on."""

    def __init__(self, memory: RequestMemory) -> None:
        self.quota = ConnectionQuota(memory, self.resume)
        self.resumed = 0

    def resume(self) -> None:
        """It may go on; it looks for itself."""
        self.resumed += 1
        self.quota.may_read()

    def holds(self, held: int, size: int = LARGE) -> bool:
        """It holds so much of a request of that size; whether it may read on."""
        self.quota.update(held, size)
        return self.quota.may_read()


def test_small_requests_are_read_however_full_the_memory_is() -> None:
    """What is free for each connection is never counted and never waits; it is all that is read at once."""
    memory = RequestMemory(MIB)
    hogs = [Peer(memory) for _ in range(3)]
    assert hogs[0].holds(MIB)
    assert not hogs[1].holds(MIB)
    other = Peer(memory)
    assert other.holds(REQUEST_BYTES_FREE - 1)
    assert other.quota.allowance(100_000) == 1
    other.quota.update(0, 0)
    assert other.quota.allowance(100_000) == REQUEST_BYTES_FREE


def test_without_room_one_goes_on_and_then_the_next() -> None:
    """Half-read requests do not wait for each other: one is read to its end, gives back, and then it is the next one's turn."""
    memory = RequestMemory(3 * MIB)
    first, second, third = (Peer(memory) for _ in range(3))
    assert first.holds(2 * MIB)
    assert not second.holds(MIB)
    assert not third.holds(MIB)
    assert first.holds(50 * MIB)
    first.quota.update(0, 0)
    assert second.resumed == 1
    assert third.resumed == 0
    assert second.holds(50 * MIB)
    second.quota.update(0, 0)
    assert third.resumed == 1
    assert memory.large.used == MIB


def test_large_requests_leave_room_for_ordinary_ones() -> None:
    """Where large requests have taken all they may, one of a megabyte is still read at once."""
    memory = RequestMemory(6 * MIB)
    hogs = [Peer(memory) for _ in range(9)]
    assert [hog.holds(MIB) for hog in hogs] == [True] * 4 + [False] * 5
    assert Peer(memory).holds(MIB, MIB)


def test_who_leaves_the_line_is_not_waited_for() -> None:
    """A connection that is cut off in line or in its turn makes way."""
    memory = RequestMemory(3 * MIB)
    holder, turn, waiting, last = (Peer(memory) for _ in range(4))
    assert holder.holds(2 * MIB - 1)
    assert turn.holds(2 * MIB)
    assert turn.quota.may_read()
    assert not waiting.holds(MIB)
    assert not last.holds(MIB)
    assert last.quota.contended
    waiting.quota.update(0, 0)
    turn.quota.update(0, 0)
    holder.quota.update(0, 0)
    assert (waiting.resumed, last.resumed) == (0, 1)
    assert not last.quota.contended
