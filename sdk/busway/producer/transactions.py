"""Transactions of a producer: their contents and their end.

Not here: requests (`transaction_requests`). A requested end continues even if its caller is cancelled.
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

logger: logging.Logger = logging.getLogger("busway.producer")
Partition = tuple[str, int]


class Outgoing(Protocol):
    async def flush(self) -> None:
        """Wait until every record is acknowledged or has failed."""

    async def settled(self) -> None:
        """Wait until no record is in flight."""

    def abandon(self, problem: BuswayError) -> None:
        """Fail every unacknowledged record; `settled` waits for those in flight."""


class Input(Protocol):
    def begin(self) -> None:
        """Collect what is handed out from now on, or raise InvalidTransactionState."""

    def offsets(self) -> tuple[Mapping[TopicPartition, OffsetAndMetadata], GroupMetadata]:
        """Return the offsets and their member, or raise TransactionAbortable."""

    def ended(self, *, committed: bool) -> None:
        """Continue after a commit, or seek back."""


class Transactions:
    """The transactions of one producer, one at a time; `number` is the latest's.

    If `implicit`, partitions need not be added before a send (KIP-890).
    """

    def __init__(self, requests: TransactionRequests, outgoing: Outgoing) -> None:
        self._requests = requests
        self._outgoing = outgoing
        self._state = State.NEW
        self.identity: Identity = NOBODY
        self.implicit: bool = False
        self.number: int = 0
        self._partitions: set[Partition] = set()
        self._groups: set[str] = set()
        self._input: Input | None = None
        self._has_input = False
        """The input's offsets are part of the transaction."""
        self._started = False
        """The coordinator has this transaction."""
        self._maybe_started = False
        """It may have it: an addition was requested, without a response."""
        self._lost_track = False
        """Brokers may have other sequence numbers than this producer."""
        self._problem: TransactionFailed | None = None
        self._asking = asyncio.Lock()
        """Held while adding to the transaction or ending it."""
        self._ending: asyncio.Task[None] | None = None

    async def identify(self) -> None:
        self._state, self._problem, self._lost_track = State.NEW, None, False
        self._input = None
        self.identity, self.implicit = await self._requests.identify()
        logger.info("sends in transactions as producer %d, epoch %d", *self.identity)
        self._step(Event.IDENTIFIED)

    # Checks for callers

    def require_open(self) -> int:
        """Return the number of the open transaction; raise if it failed, none is open or the producer cannot continue."""
        if self._state is State.OPEN:
            return self.number
        self._raise_problem()
        if self._state in {State.COMMITTING, State.ABORTING}:
            raise InvalidTransactionState("the transaction is being ended; send in the next one")
        raise InvalidTransactionState("this producer sends in transactions only: `async with producer.transaction():`")

    def require(self, number: int) -> None:
        if self.require_open() != number:
            raise InvalidTransactionState("the transaction that this belonged to has ended meanwhile")

    def is_open(self, number: int) -> bool:
        return self.number == number and self._state in {State.OPEN, State.BROKEN}

    def _raise_problem(self) -> None:
        if self._problem is not None and self._state in {State.BROKEN, State.OVER}:
            raise type(self._problem)(str(self._problem), self._problem.code) from self._problem.__cause__

    # Called by the sender

    @property
    def sends(self) -> bool:
        return self._state in {State.OPEN, State.COMMITTING}

    def lacks(self, partition: Partition) -> bool:
        return not self.implicit and partition not in self._partitions

    def sent(self, partition: Partition) -> None:
        self._partitions.add(partition)
        self._started = True

    async def add(self, partitions: Collection[Partition]) -> None:
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
        """Fail the transaction: records of it were not written, or with `lost_track` perhaps.

        `code` is the broker's error; None without a response in time.
        """
        self._lost_track |= lost_track
        self.fail((self._requests.refused_for_good(code) if code is not None else None) or problem)

    def fenced_text(self) -> str:
        return self._requests.fenced_text()

    def fail(self, problem: BuswayError) -> None:
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
        """Begin a transaction and return its number; wait for one that is ending.

        The offsets of `source` are committed with it.
        """
        if self._ending is not None and not self._ending.done():
            await asyncio.wait([self._ending])
        if self._state is State.ABORTING:  # the abort had no response
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
        """Commit a group's offsets with the transaction; errors as `Producer.send_offsets_to_transaction`."""
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
        """Abort because of a problem; raise `TransactionFailed` if the abort failed too and the problem is a
        BuswayError.
        """
        try:
            await self.end(commit=False)
        except TransactionFailed as failure:
            if isinstance(problem, BuswayError):
                raise failure from problem
            logger.warning("the transaction could not be aborted: %s", failure)
        except BuswayError as failure:
            logger.warning(
                "the abort was not answered, the next transaction or the coordinator's timeout does it: %s", failure
            )

    async def end(self, *, commit: bool) -> None:
        """Commit or abort; a cancellation takes effect when the transaction has ended.

        Errors as `Producer.commit_transaction` and `abort_transaction`.
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
            await self._send_input()  # before the flush: nothing was sent for records handed out during it
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
        """Wait for an end in progress; abort an open transaction, which blocks its readers."""
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
        ending, self._ending = self._ending, None
        if ending is not None and not ending.done():
            ending.cancel()
            await asyncio.wait([ending])


async def _outlast(work: "asyncio.Task[None]") -> None:
    """Wait for work that survives a cancellation of the wait; the cancellation takes effect afterwards."""
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        if not work.done():
            await asyncio.wait([work])
        if not work.cancelled() and (problem := work.exception()) is not None:
            logger.warning("a transaction was cancelled while it was being ended, and did not end: %s", problem)
        raise
