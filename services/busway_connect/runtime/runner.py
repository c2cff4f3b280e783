"""Lifecycle of a connector: start, pause, stop, restart after failures.

Here: states and transitions.
Not here: the task's work (`source_task`, `sink_task`), requests (`worker`).

After `Retriable` or an unreachable broker the task is RESTARTING and retried with delays up to
`errors.retry.delay.max.ms`; other failures make it FAILED with its trace until a restart or change. Other connectors
are unaffected.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from busway import (
    AuthenticationFailed,
    BrokerError,
    BuswayError,
    CommitFailed,
    ConnectionFailed,
    DeliveryFailed,
    RegistryUnreachable,
    RequestTimedOut,
    TransactionAbortable,
    TransactionInDoubt,
)
from busway_connect.connector import Config, Connector, Retriable, Sink, Source
from busway_connect.overrides import with_defaults
from busway_connect.plugins import Plugins
from busway_connect.providers import Providers
from busway_connect.redaction import References
from busway_connect.runtime.bounds import size_of
from busway_connect.runtime.failures import TaskFailed, Tolerance, said, trace_of
from busway_connect.runtime.leader import superseded
from busway_connect.runtime.sink_task import SinkTask
from busway_connect.runtime.source_task import SourceTask
from busway_connect.runtime.task_context import Counts, Stores, TaskContext
from busway_connect.transforms.chain import chain, under
from busway_connect.transforms.interface import Transform
from busway_connect.unsupported_settings import inert_settings
from busway_connect.validation import check

logger = logging.getLogger("busway.connect")
_FIRST_DELAY_S: Final = 0.5
_DELAY_MAX_S: Final = 60.0
"""Default until the settings are read."""
_PASSING: Final = (
    Retriable, ConnectionFailed, RequestTimedOut, DeliveryFailed, CommitFailed, RegistryUnreachable,
    TransactionAbortable, TransactionInDoubt,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Values that a worker passes to its runners.

    Attributes:
        transactional_id: of a source by name; None without transactions.
    """

    bootstrap: str
    plugins: Plugins
    providers: Providers
    stores: Stores
    converters: Config
    overrides: Config
    flush_interval_s: float
    shutdown_timeout_s: float
    session_timeout_ms: int
    transactional_id: Callable[[str], str | None]
    confirm_turn: Callable[[], Awaitable[None]]


@dataclass(slots=True)
class State:
    name: str
    trace: str | None = None


class Runner:
    def __init__(self, name: str, config: Config, target: str, around: Surroundings) -> None:
        self.name = name
        self.config = config
        self.size = size_of(config)
        self.target = target
        self.counts = Counts()
        self.connector: Connector | None = None
        self.state = State("UNASSIGNED")
        self.task: State | None = None
        self._around = around
        self._failed = False
        self._ended = False
        self._stop = asyncio.Event()
        self._resumed = asyncio.Event()
        self._idle = asyncio.Event()
        self._delay_s = _FIRST_DELAY_S
        self._delay_max_s = _DELAY_MAX_S
        self._references = References({}, {})

    # Requests

    def retarget(self, target: str) -> None:
        before, self.target = self.target, target
        if target == "PAUSED" and before == "STARTED":
            self._resumed.clear()
        elif target == "STARTED" and before == "PAUSED":
            self._resumed.set()
        if "STOPPED" in {before, target}:
            self._again()
        else:
            self._show_pause()

    def reconfigure(self, config: Config) -> None:
        self.config = config
        self.size = size_of(config)
        self._again()

    def restart(self) -> None:
        self._again()

    def end(self) -> None:
        """End: the connector is removed, or another worker's now."""
        self._ended = True
        self._again()

    async def idle(self) -> None:
        await self._idle.wait()

    def _again(self) -> None:
        self._failed = False
        self._delay_s = _FIRST_DELAY_S
        self._idle.clear()
        self._stop.set()

    # Lifecycle

    async def run(self) -> None:
        while not self._ended:
            self._stop.clear()
            try:
                if self.target == "STOPPED":
                    self.task = None
                    await self._show("STOPPED", None)
                    await self._forget_task()
                elif not self._failed:
                    await self._attempts()
                    if not self._failed:
                        continue
            except Exception as problem:
                logger.error("connector %s failed: %s", self.name, said(problem), exc_info=problem)
                self._failed = True
                self.state = State("FAILED", self._trace(problem))
            self._idle.set()
            await self._stop.wait()
        self._idle.set()

    async def _forget_task(self) -> None:
        with contextlib.suppress(BuswayError):  # the target state is stored; the next worker retries
            await self._around.stores.statuses.remove_task(self.name, 0)
            if self._around.stores.configs.tasks(self.name):
                await self._around.stores.configs.put_tasks(self.name, [])

    async def _attempts(self) -> None:
        first_time = not self._around.stores.configs.tasks(self.name)
        if self.target == "PAUSED" and first_time:
            await self._show("PAUSED", None)  # no task yet, as in Kafka Connect
            self._idle.set()
            await self._wait_for_start()
            return
        while not self._stop.is_set():
            try:
                await self._once()
                return
            except Exception as problem:
                if not _passing(problem):
                    logger.error("connector %s failed: %s", self.name, said(problem), exc_info=problem)
                    self._failed = True
                    await self._show_task("FAILED", self._trace(problem))
                    return
                logger.warning("connector %s starts again in %.1f s: %s", self.name, self._delay_s, said(problem))
                # After a freeze, the successor writes the status.
                await self._show_task("RESTARTING", self._trace(problem), keep=not superseded(problem))
            self.counts.restarts += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._delay_s * random.uniform(0.8, 1.2)):  # noqa: S311 - spreads load, guards nothing
                    await self._stop.wait()
            self._delay_s = min(self._delay_s * 2, self._delay_max_s)

    async def _wait_for_start(self) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (self._stop, self._resumed)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _once(self) -> None:
        running = asyncio.ensure_future(self._contained())
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await asyncio.wait([running], timeout=self._around.shutdown_timeout_s)
            if not running.done():
                logger.warning("connector %s did not stop in time and is cut off", self.name)
        finally:
            stopped.cancel()
            running.cancel()
            await asyncio.wait([running, stopped])
        if not running.cancelled():
            running.result()

    async def _contained(self) -> None:
        """Turn exits and stray cancellations into a failure of the task."""
        try:
            await self._run_task()
        except SystemExit as problem:
            raise TaskFailed(f"the connector asked the whole worker to exit with {problem.code!r}") from problem
        except asyncio.CancelledError as problem:
            if self._stop.is_set() or _asked_to_end():
                raise
            raise TaskFailed("the connector was cancelled, and not by its worker") from problem

    async def _run_task(self) -> None:
        around = self._around
        (self._resumed.set if self.target == "STARTED" else self._resumed.clear)()
        try:
            kind = around.plugins.connector(self.config["connector.class"])
            config = around.providers.resolved(self.config)
            self._references = References(self.config, config)
            await asyncio.to_thread(
                check,
                around.plugins,
                kind,
                config,
                self.config,
                transactions=around.transactional_id(self.name) is not None,
            )  # an earlier release may have stored settings that this one refuses
            tolerance = Tolerance.of(config)
            self._delay_max_s = tolerance.retry_delay_max_ms / 1000
            connector = self.connector = kind(self.name, config)
        except Exception as problem:
            self.task = None
            await self._show("FAILED", self._trace(problem))
            raise
        if self.state.name != "RUNNING" or self.task is None:
            await self._show("RUNNING" if self.target == "STARTED" else "PAUSED", None)
        if not around.stores.configs.tasks(self.name):
            await around.stores.configs.put_tasks(self.name, [self.config])
        for inert, why in inert_settings(around.plugins, kind, config).items():
            logger.warning("connector %s: %s means nothing here: %s", self.name, inert, why)
        transforms = await asyncio.to_thread(chain, around.plugins, config)
        parts = self._parts(config, tolerance, transforms)
        try:
            task = SourceTask(connector, parts) if isinstance(connector, Source) else None
            if task is None:
                assert isinstance(connector, Sink)
                await SinkTask(connector, parts).run(self._stop, self._resumed)
            else:
                await task.run(self._stop, self._resumed)
        finally:
            for end in (connector.stop, parts.key_converter.close, parts.value_converter.close):
                await self._quietly(end)

    async def _quietly(self, end: Callable[[], Awaitable[Any]]) -> None:
        try:
            async with asyncio.timeout(self._around.shutdown_timeout_s):
                await end()
        except (Exception, SystemExit, asyncio.CancelledError) as problem:
            if isinstance(problem, asyncio.CancelledError) and _asked_to_end():
                raise
            logger.warning("connector %s: letting go failed: %s", self.name, said(problem))

    def _parts(self, config: Config, tolerance: Tolerance, transforms: Sequence[Transform]) -> TaskContext:
        around = self._around
        return TaskContext(
            name=self.name,
            config=with_defaults(around.overrides, config),
            bootstrap=around.bootstrap,
            stores=around.stores,
            counts=self.counts,
            tolerance=tolerance,
            transforms=transforms,
            key_converter=self._converter(config, "key"),
            value_converter=self._converter(config, "value"),
            flush_interval_s=around.flush_interval_s,
            session_timeout_ms=around.session_timeout_ms,
            started=self._started,
            progressed=self._progressed,
            transactional_id=around.transactional_id(self.name),
            confirm_turn=around.confirm_turn,
        )

    def _converter(self, config: Config, which: str) -> Any:
        """Return the connector's converter with only its settings; otherwise the worker's."""
        name = f"{which}.converter"
        chosen = config if name in config else self._around.converters
        return self._around.plugins.converter(chosen[name])(under(chosen, f"{name}."), is_key=which == "key")

    # States

    def _trace(self, problem: BaseException) -> str:
        """Return a trace with references instead of values, as it is public."""
        return self._references.hidden(trace_of(problem))

    async def _started(self) -> None:
        await self._show_task("RUNNING" if self._resumed.is_set() else "PAUSED", None)

    def _progressed(self) -> None:
        self._delay_s = _FIRST_DELAY_S
        self.counts.progress_at = time.monotonic()

    def _show_pause(self) -> None:
        state = "RUNNING" if self.target == "STARTED" else "PAUSED"
        if self.state.name != "FAILED":
            self.state = State(state)
        if self.task is not None and self.task.name in {"RUNNING", "PAUSED"}:
            self.task = State(state)

    async def keep_states(self) -> None:
        put = self._around.stores.statuses.put
        version = self.connector.version if self.connector is not None else None
        await put(self.name, None, self.state.name, self.state.trace, version)
        if self.task is not None:
            await put(self.name, 0, self.task.name, self.task.trace, version)

    async def _show(self, state: str, trace: str | None) -> None:
        self.state = State(state, trace)
        with contextlib.suppress(BuswayError):  # in memory only while the broker is unreachable
            await self.keep_states()

    async def _show_task(self, state: str, trace: str | None, *, keep: bool = True) -> None:
        if self.state.name == "FAILED":
            return
        self.task = State(state, trace)
        if not keep:
            return
        with contextlib.suppress(BuswayError):  # in memory only: the broker may be the reason of the restart
            await self.keep_states()


def _asked_to_end() -> bool:
    """Return whether this task itself is cancelled, not only its awaitable."""
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


def _passing(problem: Exception) -> bool:
    """Return whether a retry may succeed without intervention."""
    if isinstance(problem, BrokerError):
        return problem.retriable
    if isinstance(problem, TransactionAbortable) and isinstance(problem.__cause__, BrokerError):
        return problem.__cause__.retriable or superseded(problem)
    return (isinstance(problem, _PASSING) and not isinstance(problem, AuthenticationFailed)) or superseded(problem)
