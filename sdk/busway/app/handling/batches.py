"""A partition's way through a handler that takes batches.

Here: filling, retrying and bisecting a batch.
Not here: single records (`lane`), calling (`attempts`).
"""

import asyncio
from collections.abc import Hashable, Sequence
from typing import Any

from busway.app.calling.depends import Current
from busway.app.calling.layers import Handler
from busway.app.handling.attempts import Sent
from busway.app.handling.in_flight_record import InFlightRecord
from busway.app.handling.lane import GivenUp, Lane, LaneContext
from busway.app.handling.schedule import Schedule
from busway.app.model.topic import Batch, ConsumerRecord
from busway.net.clock import APP_TIME
from busway.types import TopicPartition

_Read = tuple[InFlightRecord, ConsumerRecord[Any, Any]]


class BatchLane(Lane):
    """Gives a handler a partition's records in batches, in order; a retry holds the partition."""

    def __init__(
        self, context: LaneContext, partition: TopicPartition, handler: Handler, *, buries_unreadable: bool
    ) -> None:
        super().__init__(context, partition, handler, buries_unreadable=buries_unreadable)
        self._batch = handler.route.batch or Batch()
        # All records of a batch run at once; the next batch follows when this one is done.
        self.schedule: Schedule[InFlightRecord] = Schedule(ordering="none", concurrency=self._batch.max_records)
        self._full = asyncio.Event()
        self._filters = handler.route.where is not None

    def add(self, items: Sequence[InFlightRecord]) -> None:
        super().add(items)
        if self.schedule.queued + 1 >= self._batch.max_records:
            self._full.set()

    async def _handle(self, key: Hashable, item: InFlightRecord, mark: Current) -> None:
        await self._fill()
        items = [item]
        while (following := self.schedule.next()) is not None:
            items.append(following[1])
        mark.attempt = 1
        reads: list[_Read] = []
        for record in items:
            typed = await self._attempts.read(record)
            if typed is not None and (not self._filters or await self._wanted(record, typed)):
                reads.append((record, typed))
            else:
                self._done([record], key, [])
        if reads:
            await self._halving(reads, key, mark)
        await self._room()

    async def _fill(self) -> None:
        if self.schedule.queued + 1 >= self._batch.max_records:
            return
        self._full.clear()
        me = asyncio.current_task()
        assert me is not None
        self._resting.add(me)
        try:
            async with APP_TIME.timeout(self._batch.max_wait_s):
                await self._full.wait()
        except TimeoutError:
            pass
        self._resting.discard(me)

    async def _wanted(self, item: InFlightRecord, typed: ConsumerRecord[Any, Any]) -> bool:
        attempt = 1
        while True:
            started = self._attempts.clock()
            wanted = await self._attempts.wanted(item, typed, started, attempt)
            if not isinstance(wanted, float):
                return wanted
            await self.rest(wanted)
            attempt += 1

    async def _halving(self, reads: list[_Read], key: Hashable, mark: Current) -> None:
        """Try the whole as `retry` says, then each half once; dead-letter single failing records."""
        left = [reads]
        while left:
            if self.closing:
                raise GivenUp
            part = left.pop()
            problem = await self._try(part, key, mark, once=len(part) < len(reads))
            if problem is None:
                continue
            if len(part) == 1:
                await self._attempts.bury(part[0][0], problem, mark.attempt)
                self._done([part[0][0]], key, [])
            else:
                half = len(part) // 2
                left += [part[half:], part[:half]]
            mark.attempt += 1

    async def _try(self, part: list[_Read], key: Hashable, mark: Current, *, once: bool) -> Exception | None:
        attempts, items = self._attempts, [item for item, _ in part]
        while True:
            sent: Sent = []
            started = attempts.clock()
            await attempts.reached("before-handler", items[0])
            try:
                await attempts.call(items, [typed for _, typed in part], sent)
            except Exception as problem:  # noqa: BLE001 - the user's code; the batch is retried or halved
                wait_s = None if once else attempts.wait_s(problem, mark.attempt)
                lost = wait_s is None and len(part) == 1
                attempts.notify(items, "dead_lettered" if lost else "retried", started, mark.attempt, problem)
                if wait_s is None:
                    return problem
                attempts.warn(items[0], problem, mark.attempt, wait_s)
                await self.rest(wait_s)
                mark.attempt += 1
                continue
            attempts.notify(items, "handled", started, mark.attempt)
            await attempts.reached("after-handler", items[0])
            await attempts.acknowledged(items[0], sent)
            self._done(items, key, sent)
            return None

    def _done(self, items: list[InFlightRecord], key: Hashable, sent: Sent) -> None:
        for _ in items:
            self.schedule.finish(key)
        self.finish(items, sent)
