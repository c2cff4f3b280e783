"""A share partition at work: its state, what is written of it, its locks, and who waits for records of it.

What lives here: loading it, writing what changes before anybody is told, ending locks, waking those who wait. What does not: the rules
(`state`, `acquiring`), sessions, and which share partitions there are (`manager`).

Changes that come while one is being written are written together when it is over. What has begun to be written is not ended by who asked
for it: a task of its own does it.
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
from busway_bus.share.burying import Burying, LetterWriter
from busway_bus.share.in_flight import Acquired, Change, Letter
from busway_bus.share.limits import ShareLimits
from busway_bus.share.state import Acknowledgement, SharePartitionState
from busway_protocol.errors import ErrorCode, KafkaError

_COME_AGAIN = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
_FENCED = {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH}
_TOLD = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
_FORGOTTEN = ErrorCode.INVALID_REQUEST
"""What is kept is forgotten, or cannot be changed like that: what this leader knows of it is not what is kept."""


class Waiter(Protocol):
    """Who waits for records."""

    def look_at(self, share: "SharePartition") -> None:
        """There may be some, or it is gone."""


class Owner(Protocol):
    """Whose share partitions they are."""

    def now_ms(self) -> int:
        """Milliseconds that never jump."""
        ...

    def limits(self, group_id: str) -> ShareLimits:
        """What a group may have."""
        ...

    def current(self, share: "SharePartition") -> bool:
        """Whether its partition is what is served under this name."""
        ...

    def due(self, share: "SharePartition") -> None:
        """A lock has ended: `expire` when it is its turn."""

    async def turn(self) -> None:
        """Wait until it is its turn to do what may take long."""

    def gone(self, share: "SharePartition") -> None:
        """It is not to be used any more."""

    def holds(self, share: "SharePartition", by: int) -> None:
        """It has more or fewer records under way."""

    def settled(self, share: "SharePartition") -> None:
        """Something was written, or given back: it may be idle."""


@dataclass(slots=True, eq=False)
class _Write:
    """What waits to be written.

    Attributes:
        change: None where nothing depends on whether it is written.
    """

    batches: list[StateBatch]
    change: Change | None
    done: "asyncio.Future[None]"

    @property
    def holds(self) -> bool:
        """Whether it holds even where it cannot be written."""
        return self.change is None or self.change.holds


class SharePartition:
    """One share partition.

    Attributes:
        state: None while it is being loaded.
        problem: why it is of no use any more; None while it is.
        waiters: look at it when there may be records, who came first first.
        burying: its dead letters.
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
        self.burying = Burying(
            writer, key, partition, due=self._letters, buried=self._buried, over=lambda: owner.settled(self)
        )
        partition.waiters[self] = None

    @property
    def limits(self) -> ShareLimits:
        """What its group may have just now."""
        return self._owner.limits(self.key.group_id)

    @property
    def idle(self) -> bool:
        """Whether it can be let go: all that is known of it is kept, and nothing is to be done."""
        return self.spare and self.state is not None and not self.state.has_letters

    @property
    def spare(self) -> bool:
        """Whether it can make room for another: all that is known of it is kept, though dead letters may be missing that cannot be written
        just now. Who takes it up next tries again."""
        unused = self.state is not None and self.writing is None and not self.waiters and self.state.idle
        return unused and (self.burying.task is None or self.burying.resting)

    @property
    def size(self) -> int:
        """How many records it has under way, about."""
        return self._counted

    def readable(self, limits: ShareLimits) -> int:
        """The offset up to which its members may read."""
        return self.partition.last_stable_offset if limits.committed else self.partition.high_watermark

    # Coming and going

    async def load(self, begin: Callable[[Partition], Awaitable[int]]) -> None:
        """Take in what is kept of it; where that fails it is of no use.

        Args:
            begin: where to begin, if nobody has decided yet.
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
            if self.problem is None:  # it may have gone meanwhile
                self.state = state
                self._count()
                self.burying.begin()
                self.wake()
                self._owner.settled(self)

    def end(self, problem: KafkaError) -> None:
        """It is of no use any more: whoever waits for it is told, and comes again."""
        if self.problem is not None:
            return
        self.problem = problem
        self.partition.waiters.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.burying.stop()
        self._owner.gone(self)
        self._count()
        self.wake()

    def look_at(self, _: Partition) -> None:
        """Its partition has more, or is gone."""
        try:
            self.check()
        except KafkaError:
            return
        if self.waiters:
            self.wake()

    def check(self) -> None:
        """Refuse a partition that this broker does not lead any more, and take in where its log begins.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, or why it is of no use otherwise.
        """
        if self.problem is None and not (self._owner.current(self) and self.partition.state.role is Role.LEADER):
            self.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if self.problem is not None:
            raise self.problem.with_traceback(None)  # which grows whenever it is raised
        if self.state is not None and self.state.log_start_moved(self.partition.log.start_offset):
            self._count()

    def wake(self) -> None:
        """Tell everyone who waits that there may be records."""
        for waiter in tuple(self.waiters):
            waiter.look_at(self)

    def _count(self) -> None:
        """Tell how much is under way."""
        held = 0 if self.state is None or self.problem is not None else self.state.in_flight_count
        by, self._counted = held - self._counted, held
        if by:
            self._owner.holds(self, by)

    # What members say

    def acknowledge(self, member_id: str, acknowledgements: Iterable[Acknowledgement]) -> "asyncio.Future[None]":
        """Take in what became of records; done when it is kept, or failed when nothing of it holds.

        Raises:
            KafkaError: it is refused.
        """
        self.check()
        if self.state is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE, "the share partition is being loaded: nobody has its records"
            )
        change = self.state.acknowledge(member_id, acknowledgements, self.limits, self._owner.now_ms())
        if not change.batches:
            self._arm()  # of a renewed lock, which may end before all others; else when it is written
        return self._write(change.batches, change)

    def release(self, member_id: str) -> "asyncio.Future[None] | None":
        """Take from a member all that it has."""
        if self.state is None or self.problem is not None:
            return None
        change = self.state.release(member_id, self.limits)
        return self._write(change.batches, change)

    def take_back(self, member_id: str, acquired: Iterable[Acquired]) -> None:
        """Take from a member what it was given in an answer that is not sent."""
        if self.state is None or self.problem is not None or not self.state.take_back(member_id, acquired):
            return
        self._count()
        self.wake()
        self._owner.settled(self)

    def acquired(self) -> None:
        """Somebody has got records: their locks end some time."""
        self._count()
        self._arm()

    # Locks

    def _arm(self) -> None:
        """Have the next lock end in time; it may be a younger one, where the group's locks have become shorter."""
        if self.state is None or self.problem is not None:
            return
        deadline_ms = self.state.next_deadline_ms
        if deadline_ms is None or (self._timer is not None and self._expires_ms <= deadline_ms):
            return  # a timer that comes too early finds nothing to do
        if self._timer is not None:
            self._timer.cancel()
        left_ms = max(deadline_ms - self._owner.now_ms(), 1)
        self._timer, self._expires_ms = self._loop.call_later(left_ms / 1000, self._owner.due, self), deadline_ms

    def expire(self) -> None:
        """Take back what was held for too long."""
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
        """They are on disk: their records are done with, also where that cannot be written; then they are written once more one day."""
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
        """Write what waits, one after the other, until nothing does."""
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
        """What can be written at once: changes of different records. What holds anyhow may be of records that were given away again."""
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
        """They are kept, or are not: tell the state, then who waits."""
        assert self.state is not None, "nothing is written of what is not loaded"
        kept = [one.change for one in together if one.change is not None and (problem is None or one.holds)]
        refused = [one.change for one in together if one.change is not None and problem is not None and not one.holds]
        if kept:
            self.state.commit(*kept)
        if refused:
            self.state.roll_back(*refused, limits=self.limits, now_ms=self._owner.now_ms())
        if not together:
            return
        self._count()
        self._arm()
        if problem is not None and (forgotten or problem.code in _TOLD | {ErrorCode.NOT_LEADER_OR_FOLLOWER}):
            self.end(problem)
        for write in together:
            if not write.done.done():
                if problem is None:
                    write.done.set_result(None)
                else:
                    write.done.set_exception(problem)
        self.burying.begin()
        self.wake()


def translated(problem: KafkaError) -> KafkaError:
    """What a member is told of what whoever keeps the state has said."""
    if problem.code in _COME_AGAIN:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, problem.message)
    if problem.code in _FENCED:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, problem.message)
    if problem.code in _TOLD | {ErrorCode.NOT_LEADER_OR_FOLLOWER}:
        return problem
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem))


def _seen(done: "asyncio.Future[None]") -> None:
    """Nobody may be there to take a failure: who asked is gone."""
    if not done.cancelled():
        done.exception()
