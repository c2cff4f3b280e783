"""Retries of a handler, and the headers of dead letters.

Here: `Retry`, `Exponential`, and the headers.
Not here: waiting (`lane`) and sending (`attempts`).
"""

import asyncio
import concurrent.futures
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from busway.errors import BrokerError, BuswayError, MessageTooLarge
from busway.types import Record
from busway_protocol.errors import ErrorCode

MAX_STACK_BYTES: Final = 16 * 1024
"""Bytes of a traceback in a header; the end, where the cause is, is kept."""
MAX_MESSAGE_BYTES: Final = 4 * 1024
"""Bytes of any other text in a header; exceptions may quote whole records."""
_MESSAGE: Final = "kafka_dlt-exception-message"
_STACK: Final = "kafka_dlt-exception-stacktrace"
_CALLERS: Final = (
    __file__.rsplit(os.sep, 3)[0] + os.sep,  # busway itself
    *(os.path.dirname(module.__file__) + os.sep for module in (asyncio, concurrent.futures) if module.__file__),
)
_PYTHON: Final = os.path.dirname(os.__file__) + os.sep
_TIMESTAMP_TYPES: Final = {0: "CreateTime", 1: "LogAppendTime"}


class HandlerFailed(BuswayError):
    """A handler failed for good, and its record may not be dead-lettered; the app stops so that nothing is skipped."""


@dataclass(frozen=True, slots=True)
class Exponential:
    """Exponential backoff: `initial` seconds, times `factor` each time, at most `max`.

    Each wait is shortened by up to `jitter` of itself.
    """

    initial: float = 0.2
    factor: float = 2.0
    max: float = 10.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if self.initial < 0 or self.factor < 1 or self.max < self.initial or not 0 <= self.jitter <= 1:
            raise ValueError(
                f"{self!r}: initial is 0 or more, factor at least 1, max at least initial, jitter between 0 and 1"
            )

    def wait_s(self, attempt: int, chance: float) -> float:
        """Return seconds to wait after an attempt (the first is 1); `chance` is random, in [0, 1)."""
        try:
            longest = min(self.initial * self.factor ** (attempt - 1), self.max)
        except OverflowError:
            longest = self.max if self.initial else 0.0
        return longest * (1 - self.jitter * chance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a record is tried, and for which exceptions.

    Attributes:
        attempts: calls in all; 1 tries once.
        backoff: waits between them. Later records of the same key wait too, to keep their order; with
            `ordering="partition"`, or in batches, the whole partition waits.
        on: exceptions that are retried.
        give_up_on: exceptions that are not, although in `on`.
    """

    attempts: int = 5
    backoff: Exponential = field(default_factory=Exponential)
    on: tuple[type[Exception], ...] = (Exception,)
    give_up_on: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or self.attempts < 1:
            raise ValueError(f"attempts: {self.attempts!r} is not 1 or more")
        if not isinstance(self.backoff, Exponential):
            raise ValueError(f"backoff: {self.backoff!r:.80} is no Exponential(…)")
        for name, kinds in (("on", self.on), ("give_up_on", self.give_up_on)):
            if not isinstance(kinds, tuple) or not all(isinstance(kind, type) for kind in kinds):
                raise ValueError(f"{name}: {kinds!r:.80} is no tuple of exception classes, such as (TimeoutError,)")

    def wait_s(self, problem: Exception, attempt: int, chance: Callable[[], float]) -> float | None:
        """Return seconds until the next attempt; None to give up. `chance` returns random numbers in [0, 1)."""
        if attempt >= self.attempts or not isinstance(problem, self.on) or isinstance(problem, self.give_up_on):
            return None
        return self.backoff.wait_s(attempt, chance())


def dead_letter_topic(topic: str, group: str) -> str:
    return f"{topic}.{group}.dlt"


def dead_letter_headers(
    problem: BaseException, record: Record, *, group: str, attempts: int, handler: str
) -> list[tuple[str, bytes | None]]:
    """Return origin and reason of a dead letter, under Spring's header names."""
    stack = "".join(
        traceback.format_exception(kind := type(problem), problem, _from_handler(problem.__traceback__))
    ).encode(errors="replace")
    texts = {
        "kafka_dlt-original-topic": record.topic,
        "kafka_dlt-original-partition": str(record.partition),
        "kafka_dlt-original-offset": str(record.offset),
        "kafka_dlt-original-timestamp": str(record.timestamp_ms),
        "kafka_dlt-original-timestamp-type": _TIMESTAMP_TYPES.get(record.timestamp_type, "NoTimestampType"),
        "kafka_dlt-original-consumer-group": group,
        "kafka_dlt-exception-fqcn": f"{kind.__module__}.{kind.__qualname__}",
        _MESSAGE: _text(problem),
        "busway_dlt-attempts": str(attempts),
        "busway_dlt-handler": handler,
    }
    headers: list[tuple[str, bytes | None]] = [
        (name, text.encode(errors="replace")[:MAX_MESSAGE_BYTES]) for name, text in texts.items()
    ]
    return [*headers, (_STACK, stack[-MAX_STACK_BYTES:])]


def _from_handler(trace: TracebackType | None) -> TracebackType | None:
    """Drop the frames of Busway and Python that called the handler, unless no others are left."""
    theirs = trace
    while theirs is not None and theirs.tb_frame.f_code.co_filename.startswith(_CALLERS):
        theirs = theirs.tb_next
    return theirs or trace


def place_of(problem: BaseException) -> str:
    """Return where the handler raised, such as ` (service.py:12 in charge)`; empty if not called."""
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if not frame.filename.startswith(_CALLERS)]
    own = [
        frame for frame in frames if not frame.filename.startswith(_PYTHON)
    ] or frames  # the service itself may be an installed package
    return f" ({os.path.basename(own[-1].filename)}:{own[-1].lineno} in {own[-1].name})" if own else ""


def without_long_ones(headers: list[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """Empty the long headers, for a record too large for them."""
    return [(name, b"" if name in {_STACK, _MESSAGE} else value) for name, value in headers]


_REFUSED_RECORDS: Final = frozenset(
    {
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""Errors by which brokers refuse a record for good."""


def refusal_of(problem: BuswayError) -> BuswayError | None:
    """Return why brokers refuse one of a transaction's records; None if no record is at fault."""
    for error in (problem, problem.__cause__):
        if isinstance(error, MessageTooLarge) or (isinstance(error, BrokerError) and error.code in _REFUSED_RECORDS):
            return error
    return None


def is_too_large(problem: BuswayError) -> bool:
    return isinstance(problem, MessageTooLarge) or (
        isinstance(problem, BrokerError) and problem.code is ErrorCode.MESSAGE_TOO_LARGE
    )


def _text(problem: BaseException) -> str:
    try:
        return str(problem)
    except Exception:  # noqa: BLE001 - the user's class; its record must not stop the service
        return f"{type(problem).__name__} that cannot be shown"
