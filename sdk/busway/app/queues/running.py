"""The queues of an app that starts.

What lives here: making their workers, and running them beside the app's other handlers. What does not: working one off (`worker`).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from busway.admin.admin import Admin
from busway.app.handling.attempts import AttemptParts
from busway.app.handling.calls import Handler
from busway.app.handling.lane import Sleep
from busway.app.queues.worker import QueueParts, QueueWorker
from busway.errors import BrokerError, UnsupportedByBroker
from busway.share.consumer import ShareConsumer

if TYPE_CHECKING:
    from busway.app.bus import App

log = logging.getLogger("busway.app")

_NEVER_MS = 2**31 - 1
"""A queue whose handlers are all busy asks for nothing, for as long as that takes."""


async def start_queues(
    app: "App", handlers: Sequence[Handler], attempts: AttemptParts, *, reset: str, sleep: Sleep, drain_timeout_s: float
) -> list[QueueWorker]:
    """A worker for each queue, its consumer started; `run` works it off.

    Raises:
        ConnectionFailed: no broker can be reached.
        BrokerError: a topic cannot be had.
    """
    if not handlers:
        return []
    await _begin_at(app, sorted({handler.route.group or "" for handler in handlers}), reset)
    workers: list[QueueWorker] = []
    try:
        for handler in handlers:
            route = handler.route
            assert route.group is not None
            consumer = ShareConsumer(
                *sorted({topic.name for topic in route.topics}),
                bootstrap_servers=app.bootstrap_servers,
                client_id=app.name,
                group_id=route.group,
                acquire_mode="record_limit",
                max_poll_records=route.concurrency,
                max_poll_interval_ms=_NEVER_MS,
            )
            parts = QueueParts(
                attempts=replace(attempts, group=route.group),
                handler=handler,
                consumer=consumer,
                sleep=sleep,
                drain_timeout_s=drain_timeout_s,
            )
            workers.append(QueueWorker(parts))
            await consumer.start()
    except BaseException:
        for worker in workers:
            await worker.consumer.stop()
        raise
    return workers


async def _begin_at(app: "App", groups: Sequence[str], reset: str) -> None:
    """Where new groups begin, which for a share group the brokers keep; they would begin at the end."""
    if reset == "none":
        return
    async with Admin(app.bootstrap_servers, client_id=app.name) as admin:
        for group in groups:
            try:
                await admin.alter_group_configs(group, {"share.auto.offset.reset": reset})
            except (BrokerError, UnsupportedByBroker) as problem:
                log.warning(
                    "share group %s begins where the brokers say, share.auto.offset.reset=%s was refused: %s",
                    group,
                    reset,
                    problem,
                )


async def run_all(work: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Several loops at once, until cancelled or until one fails; then all are ended.

    Raises:
        BuswayError: what the first one to fail raised.
    """
    tasks = [asyncio.ensure_future(one()) for one in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
