"""Handling of bad records: Kafka Connect's `errors.*` settings.

Here: retries in place, tolerating or failing, the dead-letter topic and its headers.
Not here: restarting a task (`runner`).

Unlike in Kafka, `errors.tolerance=all` never skips an unreachable system (`Retriable`), which is not the record's
fault. After `errors.retry.timeout` the task restarts, with growing delays.
"""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from busway import Admin, BrokerError, MessageTooLarge, NewTopic, Producer
from busway_connect.connector import Config, Retriable
from busway_connect.runtime.topics import create_if_missing

logger = logging.getLogger("busway.connect")
T = TypeVar("T")
_FIRST_DELAY_S: Final = 0.3
_PREFIX: Final = "__connect.errors."
_TRACE: Final = f"{_PREFIX}exception.stacktrace"
LEFT_OUT: Final = "__busway.errors.left.out"
"""Header of a dead letter whose record was too large."""
_KEY_BYTES_MAX: Final = 256
_HEADER_BYTES_MAX: Final = 300
"""Limit of header texts in a too large dead letter; longer ones are cut, keys above `_KEY_BYTES_MAX` omitted."""
_TRACE_CHARS_MAX: Final = 16 * 1024
"""Limit of a trace: some hundred frames, so that a status of a thousand failed connectors is possible."""
Headers = tuple[tuple[str, bytes | None], ...]


class TaskFailed(Exception):
    """A record fails and may not be skipped. The task stops until restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """A record for the dead-letter topic.

    Attributes:
        stage: Kafka's: KEY_CONVERTER, VALUE_CONVERTER, TRANSFORMATION, TASK_PUT, KAFKA_PRODUCE.
        by: the class that refused it.
        source: original topic, partition and offset; None for a source's record.
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
        retry_timeout_ms: `errors.retry.timeout`; -1 for no limit.
        retry_delay_max_ms: `errors.retry.delay.max.ms`.
        log_failures: `errors.log.enable`.
        log_places: `errors.log.include.messages`.
        dead_letter_topic: `errors.deadletterqueue.topic.name`; empty for none.
        dead_letter_replication_factor: if created; -1 takes the broker's default.
        context_headers: `errors.deadletterqueue.context.headers.enable`.
    """

    everything: bool
    retry_timeout_ms: int
    retry_delay_max_ms: int
    log_failures: bool
    log_places: bool
    dead_letter_topic: str
    dead_letter_replication_factor: int
    context_headers: bool

    @classmethod
    def of(cls, config: Config) -> "Tolerance":
        return cls(
            everything=config.get("errors.tolerance", "none") == "all",
            retry_timeout_ms=int(config.get("errors.retry.timeout", "0")),
            retry_delay_max_ms=int(config.get("errors.retry.delay.max.ms", "60000")),
            log_failures=config.get("errors.log.enable", "false").lower() == "true",
            log_places=config.get("errors.log.include.messages", "false").lower() == "true",
            dead_letter_topic=config.get("errors.deadletterqueue.topic.name", "").strip(),
            dead_letter_replication_factor=int(config.get("errors.deadletterqueue.topic.replication.factor", "-1")),
            context_headers=config.get("errors.deadletterqueue.context.headers.enable", "false").lower() == "true",
        )


class Failures:
    def __init__(self, connector: str, tolerance: Tolerance, producer: Producer) -> None:
        self._connector = connector
        self._tolerance = tolerance
        self._producer = producer
        self.tolerated = 0
        self.dead_lettered = 0

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry an unreachable call up to `errors.retry.timeout`; then raise `Retriable`."""
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
        """Skip a record, after writing it to any dead-letter topic; raises `TaskFailed` if errors are not tolerated."""
        if not self._tolerance.everything:
            raise TaskFailed(
                f"Tolerance exceeded in error handler: {problem}; mend the record or its schema, or set errors.tolerance=all"
            ) from problem
        self.tolerated += 1
        record = bad()
        if self._tolerance.log_failures:
            place = ""
            if self._tolerance.log_places and record.source is not None:
                place = " (topic {}, partition {}, offset {})".format(*record.source)
            logger.error("connector %s passes a record over at %s%s: %s", self._connector, record.stage, place, problem)
        topic = self._tolerance.dead_letter_topic
        if topic:
            await self._bury(topic, record, problem)
            self.dead_lettered += 1

    async def make_topic(self, admin: Admin) -> None:
        """Create a missing dead-letter topic with one partition, like Kafka Connect."""
        tolerance = self._tolerance
        if tolerance.everything and tolerance.dead_letter_topic:
            wanted = NewTopic(
                tolerance.dead_letter_topic,
                partitions=1,
                replication_factor=tolerance.dead_letter_replication_factor,
            )
            await create_if_missing(admin, wanted)

    async def _bury(self, topic: str, record: BadRecord, problem: Exception) -> None:
        context = self._context(record, problem)
        headers = (*record.headers, *(context if self._tolerance.context_headers else ()))
        try:
            await self._producer.send_and_wait(topic, record.value, record.key, headers=headers)
        except (MessageTooLarge, BrokerError) as refused:
            if isinstance(refused, BrokerError) and refused.code.name != "MESSAGE_TOO_LARGE":
                raise
        else:
            return
        # It must not block later records for ever, so place and reason have to suffice.
        size = len(record.value or b"")
        text = f"the value of {size} bytes, as the record would be larger than the topic takes"
        logger.error("connector %s: a dead letter leaves out %s %s", self._connector, text, topic)
        short = tuple((name, value and value[:_HEADER_BYTES_MAX]) for name, value in context if name != _TRACE)
        key = record.key if record.key is not None and len(record.key) <= _KEY_BYTES_MAX else None
        try:
            await self._producer.send_and_wait(topic, None, key, headers=(*short, (LEFT_OUT, text.encode())))
        except (MessageTooLarge, BrokerError) as refused:
            if isinstance(refused, BrokerError) and refused.code.name != "MESSAGE_TOO_LARGE":
                raise
            raise TaskFailed(
                f"the dead-letter topic {topic} takes not even the reason of a refusal; raise its max.message.bytes"
            ) from None

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
            (_TRACE.removeprefix(_PREFIX), trace_of(problem)),
        ]
        return tuple((_PREFIX + name, str(text).encode(errors="replace")) for name, text in texts)


def said(problem: BaseException) -> str:
    """Return an exception's text in one line; a connector's may fail to format."""
    try:
        return _kept(str(problem))
    except Exception:  # noqa: BLE001 - a foreign __str__
        return type(problem).__qualname__


def trace_of(problem: BaseException) -> str:
    return _kept("".join(traceback.format_exception(problem)))


def _kept(text: str) -> str:
    """Replace lone surrogates, which no topic can store; keep a long text's beginning and end."""
    if len(text) > _TRACE_CHARS_MAX:
        half = _TRACE_CHARS_MAX // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters are left out …\n{text[-half:]}"
    return text.encode(errors="replace").decode()
