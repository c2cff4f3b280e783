"""The interface of extensions: tables, SQL, metrics and crash points.

Here: the interface, with methods that do nothing.
Not here: calling it (`hooks`), the extensions.

Order: `starting`; for new partitions `assigned`; for each record `around`, `finished`; for commits `committed`; for
removed partitions `revoked`; at the end `stopped`. `reached` names the steps in between, for crash tests.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from busway.app.model.topic import ConsumerRecord, Route
from busway.app.service import RunningService
from busway.types import Headers, TopicPartition

Outcome: TypeAlias = Literal["handled", "filtered", "retried", "dead_lettered"]
CRASH_POINTS: Final = ("before-handler", "after-handler", "after-send", "before-commit", "after-commit")
"""Steps of handling a record, in order, as passed to `Extension.reached`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """An ended call of a handler, or a dead-lettered unreadable record.

    Attributes:
        topic, partition, offset: of the record; of the first one of a batch.
        records: size of the batch, or 1.
        attempt: 1 for the first.
        problem: the exception of a failure.
    """

    route: Route
    topic: str
    partition: int
    offset: int
    records: int
    outcome: Outcome
    seconds: float
    attempt: int
    problem: BaseException | None = None


Call: TypeAlias = Callable[[ConsumerRecord[Any, Any]], Awaitable[Any]]


class Extension:
    """Base class of extensions; override methods, and pass it to `App.extend` before the app starts."""

    async def starting(self, app: RunningService) -> None:
        """Called when clients are connected, before the first record; an exception stops the start."""

    async def stopped(self, app: RunningService) -> None:
        """Called when handlers have ended and offsets are committed; also when the start failed after `starting`."""

    async def settle(self) -> bool:
        """Wait for work caused by handlers, for `TestBus.settle`; return whether there was any."""
        return False

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Called for new partitions before any of their records is handled.

        Returns:
            Offsets to start from instead of the group's; partitions that are missing keep those.
        """
        return {}

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Called for removed partitions; handlers have ended and, unless lost, offsets are committed."""

    def around(self, route: Route, call: Call) -> Call:
        """Return what to call instead of `call` for each attempt; called once per route, at start."""
        return call

    def sending(self, topic: str, headers: Headers) -> Headers:
        """Return the headers of a record that the app sends; called where a handler sends it, before it is queued.

        Rows of tables, dead letters and records of an `Outbox` are left out.
        """
        return headers

    def finished(self, handling: Handling) -> None:
        """Called when a handler's call has ended with any outcome."""

    async def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Called with the committed offsets of the group."""

    async def reached(self, point: str, topic: str, partition: int, offset: int) -> None:
        """Called at one of `CRASH_POINTS` for the record at that offset; for commits, the lowest one in the commit."""
