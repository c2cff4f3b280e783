"""What may watch and surround an app: tables, SQL, metrics and crash points are extensions.

What lives here: the interface, each method doing nothing. What does not: calling it (`handling`, `application`), the extensions.

In the life of an app: `starting`, then for partitions that come `assigned`, for each record `around`, `finished`, for offsets that were
committed `committed`, for partitions that go `revoked`, at the end `stopped`. `reached` names the steps in between, for tests that
crash there.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from busway.app.model.topic import ConsumerRecord, Route
from busway.app.service import RunningService
from busway.types import TopicPartition

Outcome: TypeAlias = Literal["handled", "filtered", "retried", "dead_lettered"]
CRASH_POINTS: Final = ("before-handler", "after-handler", "after-send", "before-commit", "after-commit")
"""The steps of handling a record, in their order, as `Extension.reached` is told of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """One call of a handler that has ended, or a record that could not be read and was dead-lettered without one.

    Attributes:
        route: whose handler.
        topic, partition, offset: of the record; of the first one of a batch.
        records: how many it was given.
        outcome: handled; filtered out; failed and tried again; failed for good.
        seconds: that it took.
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
    """Derive from it, override what is wanted, and give it to `App.extend` before the app starts."""

    async def starting(self, app: RunningService) -> None:
        """Connections are made; no record was handled yet. What it raises stops the start."""

    async def stopped(self, app: RunningService) -> None:
        """Handlers have ended and offsets are committed; called also when the start failed after `starting`."""

    async def settle(self) -> bool:
        """Return when what handlers have given this to do is done; answers whether there was anything. Tests ask: `TestBus.settle`."""
        return False

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Partitions came; none of their records was handled yet.

        Returns:
            Offsets to go on from instead of the group's committed ones; partitions that are missing keep those.
        """
        return {}

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions went; their handlers have ended and, unless they were lost, their offsets are committed."""

    def around(self, route: Route, call: Call) -> Call:
        """What is called instead of `call`, once for each attempt; asked once for each route, at start."""
        return call

    def finished(self, handling: Handling) -> None:
        """A call of a handler has ended, in whatever way."""

    async def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The group's offsets are committed up to these."""

    async def reached(self, point: str, topic: str, partition: int, offset: int) -> None:
        """One of `CRASH_POINTS` is reached for the record at that offset; for commits, the lowest one that is committed."""
