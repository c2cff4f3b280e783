"""The queues of an app that starts.

Here: creating their workers, running them beside other handlers.
Not here: one worker (`worker`).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from busway.admin.admin import Admin
from busway.app.calling.layers import Handler
from busway.app.handling.attempts import AttemptContext, Counts
from busway.app.handling.worker import Worker
from busway.app.handling.worker_context import WorkerContext
from busway.app.queues.worker import QueueContext, QueueWorker
from busway.app.service import RunningService
from busway.errors import BrokerError, UnsupportedByBroker
from busway.net.machine import current_machine
from busway.share.consumer import ShareConsumer

logger: logging.Logger = logging.getLogger("busway.app")

_NEVER_MS = 2**31 - 1
"""A queue with busy handlers polls nothing, however long that takes."""


async def start_working(
    app: RunningService,
    context: WorkerContext,
    stack: AsyncExitStack,
    *,
    worker: Worker | None,
    queues: list[QueueWorker],
    reset: str,
) -> "asyncio.Task[None]":
    """Start the queues and return the task of all the app's workers.

    Args:
        queues: receives each queue's worker once it has started.
        reset: where a new share group begins.

    Raises:
        ConnectionFailed: no broker can be reached.
        BrokerError: a topic is not available.
    """
    queued = [handler for handler in context.handlers if handler.route.group is not None]
    queues.clear()
    if queued:
        await _begin_at(app, sorted({handler.route.group or "" for handler in queued}), reset)
    attempts = AttemptContext(
        group=context.group,
        hooks=context.hooks,
        read=context.read,
        send_raw=context.send_raw,
        counts=Counts(),
        machine=current_machine(),
    )
    for handler in queued:
        queue = _worker(app, handler, attempts, context)
        stack.push_async_callback(queue.consumer.stop)  # if the worker did not
        await queue.consumer.start()
        queues.append(queue)
    work = [each.run for each in (worker, *queues) if each is not None]
    return asyncio.get_running_loop().create_task(
        work[0]() if len(work) == 1 else run_all(work), name=f"{app.name}-worker"
    )


def _worker(app: RunningService, handler: Handler, attempts: AttemptContext, context: WorkerContext) -> QueueWorker:
    route = handler.route
    assert route.group is not None
    consumer = ShareConsumer(
        *sorted({topic.name for topic in route.topics}),
        bootstrap_servers=app.bootstrap_servers,
        client_id=app.name,
        security=app.security,
        group_id=route.group,
        acquire_mode="record_limit",
        max_poll_records=route.concurrency,
        max_poll_interval_ms=_NEVER_MS,
    )
    return QueueWorker(
        QueueContext(
            attempts=replace(attempts, group=route.group),
            handler=handler,
            consumer=consumer,
            sleep=context.sleep,
            drain_timeout_s=context.drain_timeout_s,
        )
    )


async def _begin_at(app: RunningService, groups: Sequence[str], reset: str) -> None:
    """Set where new share groups begin, a group config; the brokers' default is the end."""
    if reset == "none":
        return
    async with Admin(app.bootstrap_servers, client_id=app.name, security=app.security) as admin:
        for group in groups:
            try:
                await admin.alter_group_configs(group, {"share.auto.offset.reset": reset})
            except (BrokerError, UnsupportedByBroker) as problem:
                logger.warning(
                    "share group %s begins where the brokers say, share.auto.offset.reset=%s was refused: %s",
                    group,
                    reset,
                    problem,
                )


async def run_all(work: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Run loops until cancelled or until one fails; end all and raise its error."""
    tasks = [asyncio.get_running_loop().create_task(run()) for run in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        try:
            await _end(tasks)
        except asyncio.CancelledError:  # cancelled a second time: stop draining
            await _end(tasks)
            raise
    for task in tasks:
        if not task.cancelled():
            task.result()


async def _end(tasks: Sequence["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
