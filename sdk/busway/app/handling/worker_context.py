"""Dependencies of an app's workers.

Here: `WorkerContext`.
Not here: the workers (`worker`, `busway.app.queues.worker`).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from busway.app.calling.layers import Handler
from busway.app.extending.hooks import Hooks
from busway.app.handling.attempts import SendRaw
from busway.app.handling.lane import Sleep
from busway.app.model.topic import ConsumerRecord
from busway.producer.producer import Producer
from busway.types import Record, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """Common dependencies of workers; `make_producer` is None without exactly_once handlers."""

    group: str
    handlers: Sequence[Handler]
    read: Callable[[Record], ConsumerRecord[Any, Any]]
    send_raw: SendRaw
    on_assigned: Callable[[Sequence[TopicPartition]], Awaitable[None]]
    hooks: Hooks
    sleep: Sleep
    commit_interval_s: float
    drain_timeout_s: float
    make_producer: Callable[[], Producer] | None = None
