"""What becomes of a record that cannot be dealt with: Kafka Connect's `errors.*` settings.

What lives here: retry in place, tolerate or fail, the dead-letter topic with its headers. What does not: restarting a task (`runner`).

Kafka's names and meaning, with one difference: what cannot be reached (`Retriable`) is no fault of a record, so `errors.tolerance=all`
never skips it. After `errors.retry.timeout` in place the task starts again, waiting longer each time.
"""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from busway import Producer
from busway_connect.connector import Config, Retriable

log = logging.getLogger("busway.connect")
T = TypeVar("T")
_FIRST_DELAY_S: Final = 0.3
_PREFIX: Final = "__connect.errors."
Headers = tuple[tuple[str, bytes | None], ...]


class TaskFailed(Exception):
    """A record cannot be dealt with and may not be passed over; the task stops until somebody restarts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """A record as it goes to the dead-letter topic.

    Attributes:
        stage: Kafka's name of the step: KEY_CONVERTER, VALUE_CONVERTER, TRANSFORMATION, TASK_PUT, KAFKA_PRODUCE.
        by: the class that refused it.
        source: topic, partition and offset that it was read from; None for a source's record.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers
    stage: str
    by: str
    source: tuple[str, int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The settings.

    Attributes:
        everything: `errors.tolerance=all`.
        retry_timeout_ms: `errors.retry.timeout`; -1 without end.
        retry_delay_max_ms: `errors.retry.delay.max.ms`.
        log_failures: `errors.log.enable`.
        dead_letter_topic: `errors.deadletterqueue.topic.name`; empty for none.
        context_headers: `errors.deadletterqueue.context.headers.enable`.
    """

    everything: bool
    retry_timeout_ms: int
    retry_delay_max_ms: int
    log_failures: bool
    dead_letter_topic: str
    context_headers: bool

    @classmethod
    def of(cls, config: Config) -> "Tolerance":
        """From a connector's settings, which were validated."""
        return cls(
            everything=config.get("errors.tolerance", "none") == "all",
            retry_timeout_ms=int(config.get("errors.retry.timeout", "0")),
            retry_delay_max_ms=int(config.get("errors.retry.delay.max.ms", "60000")),
            log_failures=config.get("errors.log.enable", "false").lower() == "true",
            dead_letter_topic=config.get("errors.deadletterqueue.topic.name", "").strip(),
            context_headers=config.get("errors.deadletterqueue.context.headers.enable", "false").lower() == "true",
        )


class Failures:
    """Applies the settings to one task.

    Args:
        connector: its name.
        producer: started; writes the dead letters.
    """

    def __init__(self, connector: str, tolerance: Tolerance, producer: Producer) -> None:
        self._connector = connector
        self._tolerance = tolerance
        self._producer = producer
        self.tolerated = 0
        """Records passed over."""
        self.dead_lettered = 0
        """Of these, records in the dead-letter topic."""

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try, and again while the outside cannot be reached, up to `errors.retry.timeout`.

        Raises:
            Retriable: it could not be reached for so long.
        """
        loop = asyncio.get_running_loop()
        limit_ms = self._tolerance.retry_timeout_ms
        end = float("inf") if limit_ms < 0 else loop.time() + limit_ms / 1000
        delay = _FIRST_DELAY_S
        while True:
            try:
                return await attempt()
            except Retriable:
                if loop.time() + delay > end:
                    raise
            await asyncio.sleep(delay)
            delay = min(delay * 2, self._tolerance.retry_delay_max_ms / 1000)

    async def refused(self, bad: Callable[[], BadRecord], problem: Exception) -> None:
        """Pass a record over, which is in the dead-letter topic on return if there is one.

        Raises:
            TaskFailed: errors are not tolerated.
        """
        if not self._tolerance.everything:
            raise TaskFailed(
                f"Tolerance exceeded in error handler: {problem}; mend the record or its schema, or set errors.tolerance=all"
            ) from problem
        self.tolerated += 1
        record = bad()
        if self._tolerance.log_failures:
            log.error("connector %s passes a record over at %s: %s", self._connector, record.stage, problem)
        topic = self._tolerance.dead_letter_topic
        if topic:
            headers = (*record.headers, *(self._context(record, problem) if self._tolerance.context_headers else ()))
            await self._producer.send_and_wait(topic, record.value, record.key, headers=headers)
            self.dead_lettered += 1

    def _context(self, record: BadRecord, problem: Exception) -> Headers:
        texts: list[tuple[str, Any]] = []
        if record.source is not None:
            texts += zip(("topic", "partition", "offset"), record.source, strict=True)
        kind = type(problem)
        texts += [
            ("connector.name", self._connector),
            ("task.id", 0),
            ("stage", record.stage),
            ("class.name", record.by),
            ("exception.class.name", f"{kind.__module__}.{kind.__qualname__}"),
            ("exception.message", problem),
            ("exception.stacktrace", trace_of(problem)),
        ]
        return tuple((_PREFIX + name, str(text).encode(errors="replace")) for name, text in texts)


def trace_of(problem: BaseException) -> str:
    """The traceback as the REST API shows it."""
    lines: Sequence[str] = traceback.format_exception(problem)
    return "".join(lines)
