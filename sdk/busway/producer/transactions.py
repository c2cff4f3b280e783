"""A producer's transactions: what is part of one, and how it ends.

What lives here: the transaction under way, in the states of `transaction_state`, and the order of what its end takes. What does not: the
requests (`transaction_requests`), records on their way (`sender`). An end that was asked for goes on whatever becomes of who asked.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from busway.errors import (
    BuswayError,
    InvalidTransactionState,
    TransactionAbortable,
    TransactionFailed,
    TransactionInDoubt,
)
from busway.net.clock import REAL_TIME
from busway.producer.transaction_requests import NOBODY, Identity, TransactionRequests
from busway.producer.transaction_state import Event, State, after
from busway.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from busway_protocol.errors import ErrorCode

logger = logging.getLogger("busway.producer")
Partition = tuple[str, int]


class Outgoing(Protocol):
    """The records of a producer, as its transactions see them."""

    async def flush(self) -> None:
        """Return when every record is acknowledged or has failed."""

    async def settled(self) -> None:
        """Return when no record is under way any more."""

    def abandon(self, problem: BuswayError) -> None:
        """Fail every record that is not acknowledged; those under way are waited for by `settled`."""


class Input(Protocol):
    """What a transaction reads, whose offsets are committed with it."""

    def begin(self) -> None:
        """Take along what is handed out from now on, or raise InvalidTransactionState."""

    def offsets(self) -> tuple[Mapping[TopicPartition, OffsetAndMetadata], GroupMetadata]:
        """Return what to commit in whose name, or raise TransactionAbortable."""

    def ended(self, *, committed: bool) -> None:
        """Go on behind what was committed, or go back."""


class Transactions:
    """The transactions of one producer, one at a time.

    Attributes:
        identity: who the producer is for brokers.
        implicit: partitions need not be added before something is sent to them (KIP-890).
        number: of the latest transaction that was begun.
    """

    def __init__(self, requests: TransactionRequests, outgoing: Outgoing) -> None:
        self._requests = requests
        self._outgoing = outgoing
        self._state = State.NEW
        self.identity: Identity = NOBODY
        self.implicit = False
        self.number = 0
        self._partitions: set[Partition] = set()
        self._groups: set[str] = set()
        self._input: Input | None = None
        """Whose offsets are not part of the transaction yet, or whose transaction has not ended."""
        self._has_input = False
        """The offsets of the input are part of the transaction."""
        self._started = False
        """The coordinator knows of this transaction."""
        self._maybe_started = False
        """It may know: it was asked to add something, and the answer did not come."""
        self._lost_track = False
        """Brokers may have other sequence numbers of this producer than it has itself."""
        self._problem: TransactionFailed | None = None
        self._asking = asyncio.Lock()
        """Held by whoever adds to the transaction, or ends it."""
        self._ending: asyncio.Task[None] | None = None

    async def identify(self) -> None:
        """Take the transactional id over; a producer that is started once more is a new one.

        Raises:
            ProducerFenced, TransactionFailed: it is refused.
            BrokerError, ConnectionFailed, RequestTimedOut: not decided within delivery_timeout_ms.
        """
        self._state, self._problem, self._lost_track = State.NEW, None, False
        self._input = None
        self.identity, self.implicit = await self._requests.identify()
        logger.info("sends in transactions as producer %d, epoch %d", *self.identity)
        self._step(Event.IDENTIFIED)

    # What users may do now

    def require_open(self) -> int:
        """The number of the open transaction.

        Raises:
            TransactionAbortable: it has failed and has to be aborted.
            ProducerFenced, TransactionFailed: the producer cannot go on.
            InvalidTransactionState: no transaction is open.
        """
        if self._state is State.OPEN:
            return self.number
        self._raise_problem()
        if self._state in {State.COMMITTING, State.ABORTING}:
            raise InvalidTransactionState("the transaction is being ended; send in the next one")
        raise InvalidTransactionState("this producer sends in transactions only: `async with producer.transaction():`")

    def require(self, number: int) -> None:
        """Whether this transaction is the open one still; whoever has waited asks again.

        Raises:
            As `require_open`.
        """
        if self.require_open() != number:
            raise InvalidTransactionState("the transaction that this belonged to has ended meanwhile")

    def is_open(self, number: int) -> bool:
        """Whether this transaction can be ended still."""
        return self.number == number and self._state in {State.OPEN, State.BROKEN}

    def _raise_problem(self) -> None:
        if self._problem is not None and self._state in {State.BROKEN, State.OVER}:
            raise type(self._problem)(str(self._problem), self._problem.code) from self._problem.__cause__

    # What the sender asks and tells

    @property
    def sends(self) -> bool:
        """Whether records may go out."""
        return self._state in {State.OPEN, State.COMMITTING}

    def lacks(self, partition: Partition) -> bool:
        """Whether the partition has to be added before anything is sent to it."""
        return not self.implicit and partition not in self._partitions

    def sent(self, partition: Partition) -> None:
        """A record for the partition goes out."""
        self._partitions.add(partition)
        self._started = True

    async def add(self, partitions: Collection[Partition]) -> None:
        """Add partitions; a refusal ends the transaction."""
        async with self._asking:
            wanted = [partition for partition in partitions if self.lacks(partition)]
            if not wanted or not self.sends:
                return
            self._maybe_started = True
            try:
                await self._requests.add_partitions(self.identity, wanted)
            except BuswayError as problem:
                self.fail(problem)
                return
            self._partitions.update(wanted)
            self._started = True

    def batch_failed(self, code: ErrorCode | None, problem: BuswayError, *, lost_track: bool) -> None:
        """Records of the transaction were not written: it can only be aborted.

        Args:
            code: the broker's refusal; None where there was no answer in time.
            lost_track: whether they may have been written after all, or others are missing.
        """
        self._lost_track |= lost_track
        self.fail((self._requests.refused_for_good(code) if code is not None else None) or problem)

    def fenced_text(self) -> str:
        """What it means that brokers know a newer epoch."""
        return self._requests.fenced_text()

    def fail(self, problem: BuswayError) -> None:
        """The transaction cannot be committed, or the producer cannot go on; what waits to be sent fails."""
        final = isinstance(problem, TransactionFailed) and not isinstance(problem, TransactionAbortable)
        if self._state is State.OVER or (not final and not self.sends):
            return
        if isinstance(problem, TransactionFailed):
            self._problem = problem
        else:
            self._problem = TransactionAbortable(f"the transaction has failed, abort it and begin again: {problem}")
            self._problem.__cause__ = problem
        logger.info("%s", self._problem)
        self._step(Event.DIE if final else Event.BREAK)
        self._outgoing.abandon(self._problem)

    def _step(self, event: Event) -> None:
        self._state = after(self._state, event)

    # Beginning, adding offsets, ending

    async def begin(self, source: Input | None = None) -> int:
        """Begin a transaction; its number. One that is being ended is waited for.

        Args:
            source: its offsets are committed with the transaction.

        Raises:
            ProducerFenced, TransactionFailed: the producer cannot go on.
            InvalidTransactionState: another one is open, or the input is not ready for one.
        """
        if self._ending is not None and not self._ending.done():
            await asyncio.wait([self._ending])
        if self._state is State.ABORTING:  # the coordinator did not answer when it was aborted
            await self.end(commit=False)
        if self._state is State.OVER:
            self._raise_problem()
        opened = after(self._state, Event.BEGIN)
        if source is not None:
            source.begin()
        self._state, self._input, self._has_input = opened, source, False
        self.number += 1
        self._partitions.clear()
        self._groups.clear()
        self._started = self._maybe_started = False
        self._problem = None
        self._requests.opened_at = REAL_TIME.now_s()
        return self.number

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        """Have offsets of a group committed when the transaction is.

        Raises:
            TransactionAbortable: they are refused, the group has moved on say, or were not taken in time.
            ProducerFenced, TransactionFailed: the producer cannot go on.
            InvalidTransactionState: no transaction is open, or a commit of these partitions is under way.
            ValueError: the consumer commits by itself.
        """
        number = self.require_open()
        if not offsets:
            return
        async with self._asking:
            self.require(number)
            if group.guard is not None:
                group.guard.allow(offsets)
            await self._send_offsets(offsets, group)

    async def _send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        try:
            if not self.implicit and group.group_id not in self._groups:
                self._maybe_started = True
                await self._requests.add_offsets(self.identity, group.group_id)
                self._groups.add(group.group_id)
            if group.guard is not None:
                group.guard.check(offsets, group)
            self._started = True
            await self._requests.commit_offsets(self.identity, offsets, group, implicit=self.implicit)
            if group.guard is not None:
                group.guard.settled(offsets)
        except asyncio.CancelledError:
            text = "sending its offsets was cancelled, and whether they are part of it is not known; abort it"
            self.fail(TransactionAbortable(f"the transaction has failed: {text}"))
            raise
        except BuswayError as problem:
            self.fail(problem)
            self._raise_problem()
            raise

    async def _send_input(self) -> None:
        """Send the offsets of what was read in the transaction, once."""
        if self._input is None or self._has_input:
            return
        try:
            offsets, group = self._input.offsets()
        except TransactionAbortable as problem:
            self.fail(problem)
            raise
        if offsets:
            await self._send_offsets(offsets, group)
        self._has_input = True

    async def abort_after(self, problem: BaseException) -> None:
        """Abort because of a problem.

        Raises:
            TransactionFailed: the abort failed, too, and the problem is one of Busway's.
        """
        try:
            await self.end(commit=False)
        except TransactionFailed as told:
            if isinstance(problem, BuswayError):
                raise told from problem
            logger.warning("the transaction could not be aborted: %s", told)
        except BuswayError as told:
            logger.warning(
                "the abort was not answered, the next transaction or the coordinator's timeout does it: %s", told
            )

    async def end(self, *, commit: bool) -> None:
        """Commit or abort; who is cancelled meanwhile is so when the transaction has ended.

        Raises:
            TransactionAbortable: it cannot be committed, and has to be aborted.
            TransactionInDoubt: a commit was not answered within delivery_timeout_ms.
            ProducerFenced, TransactionFailed: the producer cannot go on.
            BrokerError, ConnectionFailed, RequestTimedOut: an abort was not answered in time.
            InvalidTransactionState: no transaction is open.
        """
        if self._state is State.OVER or (commit and self._state is State.BROKEN):
            self._raise_problem()
        if self._state is State.BROKEN and self._ending is not None and not self._ending.done():
            await asyncio.wait([self._ending])  # a commit that has just failed
        await _outlast(self._end(commit=commit))

    def _end(self, *, commit: bool) -> "asyncio.Task[None]":
        self._step(Event.COMMIT if commit else Event.ABORT)
        if self._ending is None or self._ending.done():
            work = self._commit() if commit else self._abort()
            self._ending = asyncio.get_running_loop().create_task(work, name="busway-transaction-end")
        return self._ending

    async def _commit(self) -> None:
        async with self._asking:
            self._raise_problem()
            await self._send_input()  # before the flush: what is handed out during it belongs to no work that was sent
        await self._outgoing.flush()
        async with self._asking:
            self._raise_problem()
            if self._started:
                try:
                    self.identity = await self._requests.end(self.identity, committed=True, implicit=self.implicit)
                except TransactionFailed as problem:
                    self.fail(problem)
                    raise
                except BuswayError as problem:
                    raise TransactionInDoubt(
                        f"whether the transaction is committed is not known, commit_transaction() asks again: {problem}"
                    ) from problem
            self._ended(committed=True)

    async def _abort(self) -> None:
        self._outgoing.abandon(TransactionAbortable("the transaction was aborted"))
        await self._outgoing.settled()
        async with self._asking:
            try:
                await self._abort_now()
            except TransactionFailed as problem:
                if isinstance(problem, TransactionAbortable):
                    problem = TransactionFailed(f"an abort is refused, start a new producer: {problem}", problem.code)
                self.fail(problem)
                raise problem from None
            self._ended(committed=False)

    async def _abort_now(self) -> None:
        if self._started or (self._maybe_started and not self.implicit):
            try:
                self.identity = await self._requests.end(self.identity, committed=False, implicit=self.implicit)
            except TransactionFailed as problem:
                nothing_there = problem.code is ErrorCode.INVALID_TXN_STATE and not self._started
                unknown = problem.code is ErrorCode.UNKNOWN_PRODUCER_ID
                self._lost_track |= unknown
                if not (nothing_there or unknown):
                    raise
        if self._lost_track and not self.implicit:
            self.identity, _ = await self._requests.identify(self.identity)

    def _ended(self, *, committed: bool) -> None:
        self._lost_track = False
        self._requests.opened_at = None
        self._step(Event.ENDED)
        source, self._input = self._input, None
        if source is not None:
            source.ended(committed=committed)

    async def close(self, timeout_s: float | None) -> None:
        """See what is being ended through, and abort what is open: nobody else will, and its readers wait."""
        ending = self._ending
        if ending is None or ending.done():
            if self._state not in {State.OPEN, State.BROKEN}:
                return
            logger.info("the producer stops with an open transaction, which is aborted")
            ending = self._end(commit=False)
        await REAL_TIME.wait([ending], timeout=timeout_s)
        problem = ending.exception() if ending.done() and not ending.cancelled() else None
        if problem is not None or not ending.done():
            why = problem or f"no answer within {timeout_s:g} s"
            logger.warning("the producer stops with a transaction that was not ended; its timeout does it: %s", why)

    async def cut(self) -> None:
        """End at once, as when the process is killed."""
        ending, self._ending = self._ending, None
        if ending is not None and not ending.done():
            ending.cancel()
            await asyncio.wait([ending])


async def _outlast(work: "asyncio.Task[None]") -> None:
    """Wait for work that goes on when the waiting is cancelled; that takes effect when the work is done, or when it comes again."""
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        if not work.done():
            await asyncio.wait([work])
        if not work.cancelled() and (problem := work.exception()) is not None:
            logger.warning("a transaction was cancelled while it was being ended, and did not end: %s", problem)
        raise
