"""What answers take while they are not read, which connection is closed when all of them take too much, and whose turn it is to write."""

import asyncio

from busway_bus.kernel.limits import WRITE_ROUND_BYTES_MAX as ROUND
from busway_bus.kernel.limits import WRITE_SHARE_BYTES_MAX as SHARE
from busway_bus.server.response_memory import ResponseMemory
from busway_bus.server.write_rounds import WriteRounds

MIB = 1024 * 1024


class Holder:
    """A connection that took something at a time."""

    def __init__(self, taken_at: float) -> None:
        self.taken_at = taken_at
        self.alive = True

    def cut_off(self) -> None:
        """The end."""
        self.alive = False


def test_who_takes_nothing_for_longest_goes_first() -> None:
    """Beyond the limit the stalest client is cut off, not the newest; what is left fits."""
    memory = ResponseMemory(4 * MIB)
    stale, slow, fresh = Holder(100), Holder(105), Holder(106)
    memory.update(slow, MIB)
    memory.update(stale, MIB)
    memory.update(fresh, 2 * MIB + 1)
    assert [holder.alive for holder in (stale, slow, fresh)] == [False, True, True]
    assert memory.used == 3 * MIB + 1


def test_slices_are_small_where_many_do_not_read() -> None:
    """Half of the limit is where they become so."""
    memory = ResponseMemory(4 * MIB)
    assert memory.slice_bytes == MIB
    memory.update(Holder(0), 2 * MIB)
    assert memory.slice_bytes < MIB


class Writer:
    """A connection that takes everything, until its answer is over."""

    def __init__(self, turns: WriteRounds, left: int) -> None:
        self.turns = turns
        self.left = left

    def write_on(self) -> None:
        """Write what may be written now."""
        while self.left and (room := min(self.turns.room(self), self.left)):
            self.left -= room
            self.turns.written(self, room)


async def test_the_loop_looks_for_requests_between_rounds() -> None:
    """A hundred clients that take everything at once do not get it in one round, and all get it in the end, in order."""
    turns = WriteRounds()
    writers = [Writer(turns, SHARE) for _ in range(100)]
    for writer in writers:
        writer.write_on()
    rounds = 1
    while any(writer.left for writer in writers):
        left = [writer.left for writer in writers]
        assert left == sorted(left)
        await asyncio.sleep(0)
        assert sum(left) - sum(writer.left for writer in writers) <= ROUND
        rounds += 1
    assert rounds == 100 * SHARE // ROUND


async def test_one_that_takes_without_end_gets_its_share_of_a_round() -> None:
    """50 MB for one client, and small answers for others beside it: none of them waits for more than a round."""
    turns = WriteRounds()
    greedy = Writer(turns, 50 * SHARE)
    greedy.write_on()
    rounds = 0
    while greedy.left:
        small = Writer(turns, SHARE // 2)
        small.write_on()
        assert not small.left
        await asyncio.sleep(0)
        rounds += 1
    assert rounds == 49


async def test_who_is_gone_has_no_turn() -> None:
    """A connection that ends while it waits in line is not written to."""
    turns = WriteRounds()
    first, second = Writer(turns, 2 * SHARE), Writer(turns, 2 * SHARE)
    for writer in (first, second):
        writer.write_on()
    turns.leave(second)
    await asyncio.sleep(0)
    assert (first.left, second.left) == (0, SHARE)
