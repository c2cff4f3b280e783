"""Readiness of an app.

Here: its progress and its lag on the brokers.
Not here: HTTP (`busway.web`), metrics (`metrics`).

The brokers are queried only on a probe, at most once in `LOOK_EVERY_S`: without probes it costs nothing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from busway.admin.admin import Admin
from busway.app.extending.extension import Extension, Handling
from busway.app.model.outcomes import Outcomes
from busway.app.monitoring.progress import Progress
from busway.app.service import RunningService
from busway.errors import BuswayError
from busway.net.clock import REAL_TIME
from busway.types import TopicPartition

LOOK_EVERY_S: Final = 1.0
"""Probes within this time share the last answer of the brokers."""
LOOK_TIMEOUT_S: Final = 5.0
"""Maximum wait of a probe for the brokers; default timeouts: Kubernetes 1 s, Prometheus 10 s."""
STALL_TIMEOUT_S: Final = 60.0
_EARLIEST, _LATEST = -2, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether the app makes progress; `reasons` name the partition or the cause."""

    ready: bool
    reasons: tuple[str, ...] = ()


class Health(Extension):
    """Health of an app.

    Args:
        stall_timeout_s: how long a partition with lag may finish no record; counted from the first look that saw the
            lag, so that an idle partition with a new record is not stuck.
        clock: monotonic seconds; None for the machine's clock.
    """

    def __init__(self, *, stall_timeout_s: float = STALL_TIMEOUT_S, clock: Callable[[], float] | None = None) -> None:
        if stall_timeout_s <= 0:
            raise ValueError(f"stall_timeout_s: {stall_timeout_s} is not above 0")
        self.stall_timeout_s = stall_timeout_s
        self.progress: Progress = Progress()
        self.unreachable: BuswayError | None = None
        self._clock = clock
        self._app: RunningService | None = None
        self._admin: Admin | None = None
        self._stack = AsyncExitStack()
        self._joined = False
        self._looking = asyncio.Lock()
        self._looked_s: float | None = None

    def now_s(self) -> float:
        return (self._clock or REAL_TIME.monotonic_s)()

    # Extension

    async def starting(self, app: RunningService) -> None:
        self._app = app
        self._looking = asyncio.Lock()  # bound to this event loop, which may differ from the last start
        self._joined, self._looked_s, self.unreachable = False, None, None
        self.progress = Progress()

    async def stopped(self, app: RunningService) -> None:
        self._app = self._admin = None
        await self._stack.aclose()

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._joined = True
        self._looked_s = None
        self.progress.assigned(partitions, self.now_s())
        return {}

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.progress.revoked(partitions)

    def finished(self, handling: Handling) -> None:
        if handling.outcome != "retried":
            self.progress.finished(TopicPartition(handling.topic, handling.partition), self.now_s())

    async def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.progress.committed(offsets, self.now_s())

    # Looking

    async def look(self) -> None:
        """Query the brokers for ends and unknown offsets; keep a failure in `unreachable`."""
        async with self._looking:
            now_s = self.now_s()
            app = self._app
            if app is None or (self._looked_s is not None and now_s - self._looked_s < LOOK_EVERY_S):
                return
            try:
                async with REAL_TIME.timeout(LOOK_TIMEOUT_S):
                    await self._ask(app)
            except TimeoutError:
                self.unreachable = BuswayError(f"the brokers did not answer within {LOOK_TIMEOUT_S:g} s")
            except BuswayError as problem:
                self.unreachable = problem
            else:
                self.unreachable = None
            self._looked_s = self.now_s()

    async def _ask(self, app: RunningService) -> None:
        if not (partitions := self.progress.partitions):
            return
        if self._admin is None:
            self._admin = await self._stack.enter_async_context(
                Admin(app.bootstrap_servers, client_id=f"{app.name}-health", security=app.security)
            )
        if unknown := self.progress.unknown:
            group_offsets = await self._admin.list_group_offsets(app.group_id)
            begin = await self._admin.list_offsets(dict.fromkeys(unknown - group_offsets.keys(), _EARLIEST))
            committed = {partition: group_offsets[partition].offset for partition in unknown & group_offsets.keys()}
            # A commit of the app meanwhile is newer than this answer.
            self.progress.committed(
                {
                    partition: at
                    for partition, at in {**begin, **committed}.items()
                    if partition in self.progress.unknown
                },
                self.now_s(),
            )
        ends = await self._admin.list_offsets(dict.fromkeys(partitions, _LATEST))
        self.progress.ends(ends, self.now_s())

    def parked(self) -> Mapping[TopicPartition, int]:
        worker = self._app.worker if self._app is not None else None
        return worker.parked() if worker is not None else {}

    def transactions(self) -> Outcomes | None:
        worker = self._app.worker if self._app is not None else None
        return None if worker is None else worker.outcomes

    async def ready(self) -> Readiness:
        app = self._app
        if app is None:
            return Readiness(ready=False, reasons=("the app is not running",))
        if app.problem is not None:
            return Readiness(ready=False, reasons=(f"the app has stopped: {app.problem}",))
        waiting = tuple(
            f"share group {worker.group} has assigned nothing yet"
            for worker in app.queue_workers
            if not worker.has_joined
        )
        if waiting or not app.routes:
            return Readiness(ready=not waiting, reasons=waiting)
        if not self._joined:
            return Readiness(ready=False, reasons=(f"group {app.group_id} has assigned nothing yet",))
        await self.look()
        if self.unreachable is not None:
            return Readiness(ready=False, reasons=(str(self.unreachable),))
        reasons = tuple(
            f"{progress.partition.topic}-{progress.partition.partition} is {progress.lag} records behind at offset {progress.committed} and has "
            f"finished none for {progress.idle_s:.0f} s"
            for progress in self.progress.all(self.now_s())
            if progress.stuck_s >= self.stall_timeout_s
        )
        if (made := self.transactions()) is not None and made.problem is not None:
            failing_s = REAL_TIME.monotonic_s() - made.failing_s
            if failing_s >= self.stall_timeout_s:
                reasons += (f"no transaction was committed for {failing_s:.0f} s: {made.problem}",)
        return Readiness(ready=not reasons, reasons=reasons)
