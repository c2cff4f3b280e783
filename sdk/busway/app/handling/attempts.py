"""One handler's attempts at a record, and dead letters.

Here: reading a record, calling the handler with its deadline, dead-lettering.
Not here: waiting between attempts (`lane`), retry rules (`busway.app.model.retry`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from busway.app.calling.depends import Current, current
from busway.app.calling.layers import Handler, unacknowledged
from busway.app.extending.extension import Handling, Outcome
from busway.app.extending.hooks import Hooks
from busway.app.handling.handler_output import HandlerOutput, current_output
from busway.app.handling.in_flight_record import InFlightRecord
from busway.app.handling.transactor import Transactor
from busway.app.model.retry import (
    HandlerFailed,
    dead_letter_headers,
    dead_letter_topic,
    is_too_large,
    place_of,
    without_long_ones,
)
from busway.app.model.topic import ConsumerRecord, Route
from busway.app.serdes import load_patiently
from busway.errors import BuswayError
from busway.net.clock import APP_TIME
from busway.net.retry import Backoff
from busway.serde.errors import Undecodable
from busway.serde.plain import SchemaMissing
from busway.types import Headers, Record, TopicPartition
from busway_protocol.machine import Machine

logger: logging.Logger = logging.getLogger("busway.app")

Rest = Callable[[float], Awaitable[None]]
SendRaw = Callable[[str, bytes | None, bytes | None, Headers], Awaitable[Any]]
Sent = list["asyncio.Future[Any]"]
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 10.0


class HandlerTimedOut(BuswayError):
    """A handler took longer than its `timeout_s`.

    A coroutine is cancelled; a plain function continues in its thread, so it needs a deadline inside.
    """


class Cancelled(Exception):
    """A handler awaited a task that was cancelled, though not by the app."""


class Exited(Exception):
    """A handler raised no `Exception`, such as SystemExit: one record must not end the process."""


@dataclass(slots=True)
class Counts:
    """Counters of an app since it started.

    Attributes:
        handled: records whose handlers all returned or filtered them out.
    """

    handled: int = 0
    dead_lettered: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptContext:
    group: str
    hooks: Hooks
    read: Callable[[Record], ConsumerRecord[Any, Any]]
    send_raw: SendRaw
    counts: Counts
    machine: Machine
    transactor: Transactor | None = None


class Attempts:
    """One handler's attempts at the records of a topic.

    Args:
        buries_unreadable: whether an unreadable record may be dead-lettered.
        rest: waits in place; raises if the partition is revoked meanwhile.

    Raises:
        HandlerFailed: a record is unreadable or failed for good, and may not be dead-lettered.
    """

    def __init__(self, context: AttemptContext, handler: Handler, *, buries_unreadable: bool, rest: Rest) -> None:
        self._context = context
        self._call = handler.call
        self.route: Route = handler.route
        self._timeout_s = handler.route.timeout_s
        self._where = handler.route.where
        self._buries_unreadable = buries_unreadable
        self._rest = rest
        self._transactor = context.transactor if handler.route.guarantee == "exactly_once" else None

    # Reading

    async def read(self, item: InFlightRecord) -> ConsumerRecord[Any, Any] | None:
        if self._transactor is not None and (refused := self._transactor.refused(item)) is not None:
            await self.bury(item, refused, 1)
            return None
        while item.typed is None and not item.unreadable:
            try:
                item.typed = self._context.read(item.record)
            except SchemaMissing as missing:
                try:
                    await load_patiently(missing, item.record, self._rest)
                except Undecodable as problem:
                    await self._unreadable(item, problem)
            except Undecodable as problem:
                await self._unreadable(item, problem)
        return item.typed

    async def _unreadable(self, item: InFlightRecord, problem: Undecodable) -> None:
        if item.unreadable:
            return  # found by another handler of the topic meanwhile
        if not self._buries_unreadable:
            raise HandlerFailed(f"{item.where} cannot be read: {problem}") from problem
        item.unreadable = True
        self.notify([item], "dead_lettered", self.clock(), 1, problem)
        logger.error("%s cannot be read; to the dead letters: %s", item.where, problem)
        await self._bury(item, problem, attempts=1, handler="")

    # Calling

    async def make(
        self, item: InFlightRecord, typed: ConsumerRecord[Any, Any], mark: Current, sent: Sent
    ) -> float | None:
        """Make attempt number `mark.attempt`; return seconds until the next, None when done.

        `sent` receives what a successful handler sent without waiting.
        """
        hooks = self._context.hooks
        started = self.clock()
        if self._where is not None:
            wanted = await self.wanted(item, typed, started, mark.attempt)
            if wanted is False:
                return None
            if wanted is not True:
                return wanted
        if hooks.stepped:
            await self.reached("before-handler", item)
        try:
            await self.call((item,), typed, sent)
        except Exception as problem:  # noqa: BLE001 - the user's code; the record is retried or dead-lettered
            return await self._failed(item, problem, started, mark.attempt)
        if hooks.watched:
            self.notify([item], "handled", started, mark.attempt)
        if hooks.stepped:
            await self.reached("after-handler", item)
        return None

    async def wanted(
        self, item: InFlightRecord, typed: ConsumerRecord[Any, Any], started: float, attempt: int
    ) -> bool | float:
        """Evaluate the filter; False also if the record was dead-lettered, seconds until its retry if it failed."""
        if self._where is None:
            return True
        try:
            wanted = bool(self._where(typed))
        except Exception as problem:  # noqa: BLE001 - the user's code; the record is retried or dead-lettered
            wait_s = await self._failed(item, problem, started, attempt)
            return False if wait_s is None else wait_s
        if not wanted:
            self.notify([item], "filtered", started, attempt)
        return wanted

    async def call(self, items: Sequence[InFlightRecord], argument: Any, sent: Sent) -> None:
        """Call the handler with a record or a list of them.

        Sends of a failed attempt are not awaited: the next attempt or the dead letter replaces them. With exactly_once
        nothing of a failed attempt is sent, and the output of a successful one is queued for a transaction.

        Raises:
            Exception: raised by the handler, or `HandlerTimedOut`.
        """
        if self._transactor is None:
            current_output.set(None)
            await self._call_once(argument, sent)
            return
        output = HandlerOutput(items, items[0].partition)
        current_output.set(output)
        try:
            await self._call_once(argument, sent)
            output.finish()
            self._transactor.add(output)
        except BaseException:
            output.undo()
            raise
        finally:
            current_output.set(None)
            if output.turns is not None:
                await output.release()

    async def _call_once(self, argument: Any, sent: Sent) -> None:
        unacknowledged.set(sent)
        try:
            if self._timeout_s is None:
                await self._call(argument)
            else:
                await self._call_until(argument, self._timeout_s)
        except asyncio.CancelledError as cancelled:
            # Only this task's own cancellation propagates; a handler that awaited a cancelled task has failed.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            sent.clear()
            raise Cancelled("the handler waited for a task that was cancelled") from cancelled
        except (Exception, KeyboardInterrupt, GeneratorExit):
            sent.clear()
            raise
        except BaseException as problem:
            sent.clear()
            raise Exited(f"the handler raised {problem!r}, which is no Exception") from problem

    async def _call_until(self, argument: Any, timeout_s: float) -> None:
        mark = current.get()
        mark.deadline = deadline = APP_TIME.timeout(timeout_s)
        try:
            async with deadline:
                await self._call(argument)
        except TimeoutError as problem:
            if not deadline.expired():
                raise
            raise HandlerTimedOut(f"the handler took longer than {timeout_s:g} s") from problem
        finally:
            mark.deadline = None

    # Failing

    async def _failed(self, item: InFlightRecord, problem: Exception, started: float, attempt: int) -> float | None:
        wait_s = self.wait_s(problem, attempt)
        self.notify([item], "dead_lettered" if wait_s is None else "retried", started, attempt, problem)
        if wait_s is None:
            await self.bury(item, problem, attempt)
        else:
            self.warn(item, problem, attempt, wait_s)
        return wait_s

    def wait_s(self, problem: Exception, attempt: int) -> float | None:
        return self.route.retry.wait_s(problem, attempt, self._context.machine.chance.random)

    def warn(self, item: InFlightRecord, problem: Exception, attempt: int, wait_s: float) -> None:
        logger.warning(
            "%s failed on %s, attempt %d; again in %.2f s: %r", self.route.name, item.where, attempt, wait_s, problem
        )

    async def bury(self, item: InFlightRecord, problem: Exception, attempts: int) -> None:
        where = f"{self.route.name} failed on {item.where}"
        if not self.route.dead_letter:
            raise HandlerFailed(f"{where} after {attempts} attempts: {problem!r}") from problem
        where_raised = place_of(problem)
        logger.error("%s after %d attempts; to the dead letters: %r%s", where, attempts, problem, where_raised)
        await self._bury(item, problem, attempts=attempts, handler=self.route.name)

    async def _bury(self, item: InFlightRecord, problem: Exception, *, attempts: int, handler: str) -> None:
        """Write it unchanged to the dead-letter topic, retrying without an end: no record is skipped."""
        record, group = item.record, self._context.group
        topic = dead_letter_topic(record.topic, group)
        unacknowledged.set(None)
        output = None if self._transactor is None else HandlerOutput((item,), item.partition)
        current_output.set(output)
        reasons = dead_letter_headers(problem, record, group=group, attempts=attempts, handler=handler)
        backoff = Backoff(initial=_FIRST_WAIT_S, limit=_LONGEST_WAIT_S)
        while True:
            try:
                await self._context.send_raw(topic, record.value, record.key, [*record.headers, *reasons])
            except BuswayError as unreachable:
                if is_too_large(unreachable) and (fewer := without_long_ones(reasons)) != reasons:
                    reasons = fewer
                    continue
                logger.error("%s-%d stops at offset %d: %s: %s", *record[:3], topic, unreachable)
            else:
                item.buried = True
                self._context.counts.dead_lettered += 1
                if output is not None and self._transactor is not None:
                    output.finish()
                    self._transactor.add(output)
                    current_output.set(None)
                return
            await self._rest(backoff.next())

    # Output

    def complete(self, items: Sequence[InFlightRecord]) -> None:
        """Mark records as done by the handler; those without output are queued for a transaction too."""
        assert self._transactor is not None
        if rest := [item for item in items if not item.completed]:
            self._transactor.add(HandlerOutput(rest, rest[0].partition))

    async def room(self) -> None:
        assert self._transactor is not None
        await self._transactor.room()

    # Extensions

    def clock(self) -> float:
        return self._context.machine.monotonic_s() if self._context.hooks.watched else 0.0

    async def reached(self, point: str, item: InFlightRecord) -> None:
        if self._context.hooks.stepped:
            record = item.record
            await self._context.hooks.reached(point, TopicPartition(record.topic, record.partition), record.offset)

    async def acknowledged(self, item: InFlightRecord, sent: Sent) -> None:
        if self._context.hooks.stepped and self._transactor is None:
            if sent:
                await asyncio.wait(sent)
            await self.reached("after-send", item)

    def notify(
        self,
        items: Sequence[InFlightRecord],
        outcome: Outcome,
        started: float,
        attempt: int,
        problem: Exception | None = None,
    ) -> None:
        if not self._context.hooks.watched:
            return
        first = items[0].record
        self._context.hooks.finished(
            Handling(
                route=self.route,
                topic=first.topic,
                partition=first.partition,
                offset=first.offset,
                records=len(items),
                outcome=outcome,
                seconds=self._context.machine.monotonic_s() - started,
                attempt=attempt,
                problem=problem,
            )
        )
