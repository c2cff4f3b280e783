"""A share partition: its state, its writes, its locks and its waiters.

Here: loading, writes before replies, expiring locks, waking waiters.
Not here: the rules (`state`, `acquisition`), sessions, the table (`manager`).

Changes during a write are written together after it. A cancelled caller does not cancel a write.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from busway_bus.kernel.limits import DEAD_LETTERS_PER_BATCH_MAX
from busway_bus.kernel.share_state import SharePartitionKey, SharePersister, StateBatch
from busway_bus.replication.partition import Partition
from busway_bus.replication.partition_state import Role
from busway_bus.share.in_flight import Acquired, Change, Letter
from busway_bus.share.limits import ShareLimits
from busway_bus.share.partition_dead_letters import LetterWriter, PartitionDeadLetters
from busway_bus.share.state import Acknowledgement, SharePartitionState
from busway_protocol.errors import ErrorCode, KafkaError

_COME_AGAIN = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
_FENCED = {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH}
_NOT_FOUND = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
_FORGOTTEN = ErrorCode.INVALID_REQUEST
"""The persister's error if this leader's state is not the persisted one."""


class Waiter(Protocol):
    def look_at(self, share: "SharePartition") -> None:
        """Handle possible new records, or the share partition's end."""


class Owner(Protocol):
    def now_ms(self) -> int: ...

    def limits(self, group_id: str) -> ShareLimits: ...

    def current(self, share: "SharePartition") -> bool: ...

    def due(self, share: "SharePartition") -> None:
        """Schedule `expire`: a lock has expired."""

    async def turn(self) -> None:
        """Wait for a round in which long work may run."""

    def gone(self, share: "SharePartition") -> None:
        """Remove the share partition."""

    def holds(self, share: "SharePartition", by: int) -> None:
        """Add to the records in flight; negative for fewer."""

    def settled(self, share: "SharePartition") -> None:
        """Handle a finished write or release."""


@dataclass(slots=True, eq=False)
class _Write:
    """A pending write. `change`: None where nothing depends on the result."""

    batches: list[StateBatch]
    change: Change | None
    done: "asyncio.Future[None]"

    @property
    def holds(self) -> bool:
        return self.change is None or self.change.holds


class SharePartition:
    """One share partition.

    Attributes:
        state: None while it is being loaded.
        problem: why it can no longer be used.
        waiters: called in FIFO order when there may be records.
    """

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        *,
        persister: SharePersister,
        owner: Owner,
        writer: LetterWriter,
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state: SharePartitionState | None = None
        self.problem: KafkaError | None = None
        self.waiters: dict[Waiter, None] = {}
        self._persister = persister
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._expires_ms = 0
        self._waiting: deque[_Write] = deque()
        self._counted = 0
        self.writing: asyncio.Task[None] | None = None
        self.dead_letters = PartitionDeadLetters(
            writer, key, partition, due=self._letters, buried=self._buried, over=lambda: owner.settled(self)
        )
        partition.waiters[self] = None

    @property
    def limits(self) -> ShareLimits:
        return self._owner.limits(self.key.group_id)

    @property
    def idle(self) -> bool:
        """Whether it can be unloaded: all is persisted, no work is left."""
        return self.spare and self.state is not None and not self.state.has_letters

    @property
    def spare(self) -> bool:
        """Whether it may be unloaded to make room.

        Dead letters waiting for a retry are retried after the next load.
        """
        unused = self.state is not None and self.writing is None and not self.waiters and self.state.idle
        return unused and (self.dead_letters.task is None or self.dead_letters.resting)

    @property
    def size(self) -> int:
        return self._counted

    def readable(self, limits: ShareLimits) -> int:
        return self.partition.last_stable_offset if limits.committed else self.partition.high_watermark

    # Lifecycle

    async def load(self, begin: Callable[[Partition], Awaitable[int]]) -> None:
        """Load the persisted state; end the share partition on failure.

        `begin`: returns the start offset if none is persisted.
        """
        try:
            kept = await self._persister.read(self.key, leader_epoch=self.leader_epoch)
            if kept.start_offset < 0:
                kept = replace(kept, start_offset=await begin(self.partition), batches=())
            state = SharePartitionState(kept)
        except KafkaError as problem:
            self.end(translated(problem))
        except ValueError as problem:
            self.end(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem)))
        else:
            if self.problem is None:  # it may have ended meanwhile
                self.state = state
                self._count()
                self.dead_letters.begin()
                self.wake()
                self._owner.settled(self)

    def end(self, problem: KafkaError) -> None:
        """Make the share partition unusable and wake its waiters."""
        if self.problem is not None:
            return
        self.problem = problem
        self.partition.waiters.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.dead_letters.stop()
        self._owner.gone(self)
        self._count()
        self.wake()

    def look_at(self, _: Partition) -> None:
        """Check the partition after a change or deletion, then wake the waiters."""
        try:
            self.check()
        except KafkaError:
            return
        if self.waiters:
            self.wake()

    def check(self) -> None:
        """Check that this broker leads the partition in the same epoch; follow the log's start.

        KafkaError: NOT_LEADER_OR_FOLLOWER, or the error that made it unusable.
        """
        state = self.partition.state
        led = state.role is Role.LEADER and state.leader_epoch == self.leader_epoch
        if self.problem is None and not (led and self._owner.current(self)):
            self.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if self.problem is not None:
            raise self.problem.with_traceback(None)  # which grows whenever it is raised
        if self.state is not None and self.state.log_start_moved(self.partition.log.start_offset):
            self._count()

    def wake(self) -> None:
        for waiter in tuple(self.waiters):
            waiter.look_at(self)

    def _count(self) -> None:
        held = 0 if self.state is None or self.problem is not None else self.state.in_flight_count
        by, self._counted = held - self._counted, held
        if by:
            self._owner.holds(self, by)

    # Calls of members

    def acknowledge(self, member_id: str, acknowledgements: Iterable[Acknowledgement]) -> "asyncio.Future[None]":
        """Apply acknowledgements; the future is done once persisted, or fails.

        KafkaError: it is refused.
        """
        self.check()
        if self.state is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE, "the share partition is being loaded: its records are not acquired"
            )
        change = self.state.acknowledge(member_id, acknowledgements, self.limits, self._owner.now_ms())
        if not change.batches:
            self._arm()  # a renewed lock may expire first; other changes arm once written
        return self._write(change.batches, change)

    def release(self, member_id: str) -> "asyncio.Future[None] | None":
        if self.state is None or self.problem is not None:
            return None
        change = self.state.release(member_id, self.limits)
        return self._write(change.batches, change)

    def take_back(self, member_id: str, acquired: Iterable[Acquired]) -> None:
        if self.state is None or self.problem is not None or not self.state.take_back(member_id, acquired):
            return
        self._count()
        self.wake()
        self._owner.settled(self)

    def acquired(self) -> None:
        self._count()
        self._arm()

    # Locks

    def _arm(self) -> None:
        """Arm the timer for the next expiry.

        It may be a younger lock's, after a change of the lock duration.
        """
        if self.state is None or self.problem is not None:
            return
        deadline_ms = self.state.next_deadline_ms
        if deadline_ms is None or (self._timer is not None and self._expires_ms <= deadline_ms):
            return  # a timer that fires too early finds nothing to do
        if self._timer is not None:
            self._timer.cancel()
        left_ms = max(deadline_ms - self._owner.now_ms(), 1)
        self._timer, self._expires_ms = self._loop.call_later(left_ms / 1000, self._owner.due, self), deadline_ms

    def expire(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.state is None or self.problem is not None:
            return
        change = self.state.expire(self.limits, self._owner.now_ms())
        self._arm()
        if change.batches:
            self._write(change.batches, change)
            self.wake()

    # Dead letters

    def _letters(self) -> list[Letter]:
        if self.state is None or self.problem is not None:
            return []
        return self.state.letters(self.limits, DEAD_LETTERS_PER_BATCH_MAX)

    def _buried(self, letters: Sequence[Letter]) -> None:
        """Archive the records of written dead letters.

        If that write fails, the letters may be written again.
        """
        assert self.state is not None, "nothing is given up of what is not loaded"
        batches = self.state.buried(letters)
        self._count()
        self._write(batches, None)
        self.wake()

    # Writing

    def _write(self, batches: list[StateBatch], change: Change | None) -> "asyncio.Future[None]":
        done: asyncio.Future[None] = self._loop.create_future()
        if not batches:
            done.set_result(None)
            return done
        done.add_done_callback(_seen)
        self._waiting.append(_Write(batches, change, done))
        if self.writing is None:
            self.writing = asyncio.ensure_future(self._write_on())
        return done

    async def _write_on(self) -> None:
        try:
            while self._waiting:
                await self._owner.turn()
                together = self._together()
                problem: KafkaError | None = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker stops")
                forgotten = False
                try:
                    await self._write_down([batch for write in together for batch in write.batches])
                    problem = None
                except KafkaError as refusal:
                    problem, forgotten = translated(refusal), refusal.code is _FORGOTTEN
                finally:
                    self._written(together, problem, forgotten=forgotten)
        finally:
            self.writing = None
            abandoned, self._waiting = list(self._waiting), deque()
            self._written(abandoned, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker stops"))
            self._owner.settled(self)

    def _together(self) -> list[_Write]:
        """Take pending writes of different records.

        One that `holds` goes alone: its records may have been acquired again.
        """
        together = [self._waiting.popleft()]
        while not together[0].holds and self._waiting and not self._waiting[0].holds:
            together.append(self._waiting.popleft())
        return together

    async def _write_down(self, batches: list[StateBatch]) -> None:
        assert self.state is not None, "nothing is written of what is not loaded"
        if self.problem is not None:
            raise self.problem.with_traceback(None)  # which grows whenever it is raised
        ordered = sorted(batches, key=lambda batch: batch.first_offset)
        await self._persister.write(self.key, self.state.written(self.leader_epoch, ordered))

    def _written(self, together: list[_Write], problem: KafkaError | None, *, forgotten: bool = False) -> None:
        assert self.state is not None, "nothing is written of what is not loaded"
        kept = [write.change for write in together if write.change is not None and (problem is None or write.holds)]
        refused = [
            write.change for write in together if write.change is not None and problem is not None and not write.holds
        ]
        if kept:
            self.state.commit(*kept)
        if refused:
            self.state.roll_back(*refused, limits=self.limits, now_ms=self._owner.now_ms())
        if not together:
            return
        self._count()
        self._arm()
        if problem is not None and (forgotten or problem.code in _NOT_FOUND | {ErrorCode.NOT_LEADER_OR_FOLLOWER}):
            self.end(problem)
        for write in together:
            if not write.done.done():
                if problem is None:
                    write.done.set_result(None)
                else:
                    write.done.set_exception(problem)
        self.dead_letters.begin()
        self.wake()


def translated(problem: KafkaError) -> KafkaError:
    if problem.code in _COME_AGAIN:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, problem.message)
    if problem.code in _FENCED:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, problem.message)
    if problem.code in _NOT_FOUND | {ErrorCode.NOT_LEADER_OR_FOLLOWER}:
        return problem
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem))


def _seen(done: "asyncio.Future[None]") -> None:
    """Retrieve a failure, as its caller may have been cancelled."""
    if not done.cancelled():
        done.exception()
