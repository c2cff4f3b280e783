"""A coordinator that answers as a test has written down, in a time of its own."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from busway.cluster.metadata import ClusterMetadata
from busway.errors import BuswayError
from busway.net.retry import Backoff


@dataclass(slots=True)
class Asked:
    """A request that has come, and the highest version that it may have."""

    message: Any
    at_most: int | None


@dataclass(slots=True, eq=False)
class ScriptedCluster:
    """Stands for a `ClusterClient` and its connections.

    Attributes:
        answers: by the request's class, what it is answered with in turn: a message, or an error that is raised.
        level: of transaction.version.
        asked: the requests, in order.
        searches: how often a coordinator was looked for.
    """

    answers: dict[type[Any], deque[Any]] = field(default_factory=dict)
    level: int = 2
    asked: list[Asked] = field(default_factory=list)
    searches: int = 0
    held: "dict[type[Any], asyncio.Event]" = field(default_factory=dict)
    metadata: ClusterMetadata = field(default_factory=ClusterMetadata)
    when_lost: Callable[[], None] | None = None

    def answer(self, kind: type[Any], *answers: Any) -> None:
        """Write down the next answers to a kind of request."""
        self.answers.setdefault(kind, deque()).extend(answers)

    def kinds(self) -> list[str]:
        """The names of the requests that have come."""
        return [type(request.message).__name__.removesuffix("Request") for request in self.asked]

    def backoff(self) -> Backoff:
        """Waits, in no time."""
        return Backoff(lambda: 0.0, initial=0.0, limit=0.0)

    async def find_coordinator(self, key: str, kind: Any) -> int:
        """Always the same broker."""
        self.searches += 1
        return 1

    async def connection(self, node_id: int, purpose: str = "") -> "ScriptedCluster":
        """It is its own."""
        return self

    async def refresh(self) -> None:
        """Nothing is known."""

    def feature(self, name: str) -> int:
        """The level of transactions."""
        assert name == "transaction.version"
        return self.level

    async def request(self, message: Any, *, timeout_s: float | None = None, at_most: int | None = None) -> Any:
        """The next answer for its kind."""
        self.asked.append(Asked(message, at_most))
        if (event := self.held.get(type(message))) is not None:
            await event.wait()
        answer = self.answers[type(message)].popleft()
        if isinstance(answer, BuswayError):
            raise answer
        return answer


@dataclass(slots=True)
class Records:
    """Stands for the records of a producer; `flushing` runs while they are waited for."""

    abandoned: list[BuswayError] = field(default_factory=list)
    flushing: Callable[[], None] = lambda: None

    async def flush(self) -> None:
        """They are written, or what the test lets happen."""
        self.flushing()

    async def settled(self) -> None:
        """None is under way."""

    def abandon(self, problem: BuswayError) -> None:
        """Remember why."""
        self.abandoned.append(problem)
