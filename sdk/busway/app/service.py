"""A running service, as its parts and extensions see it.

Here: `RunningService`, implemented by `App`, and its workers' status.
Not here: running it (`application`), the app as topics see it (`model.topic`).
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from busway.app.model.outcomes import Outcomes
from busway.app.model.topic import ConsumerRecord, Route, Topic, TopicOwner
from busway.types import TopicPartition

if TYPE_CHECKING:
    from busway.producer.producer import Producer

K = TypeVar("K")
V = TypeVar("V")


class WorkerStatus(Protocol):
    """Progress of the handlers of partitions."""

    def parked(self) -> Mapping[TopicPartition, int]:
        """Return the number of records between attempts, by partition."""

    @property
    def outcomes(self) -> Outcomes | None:
        """Outcomes of transactions; None without any."""


class QueueStatus(Protocol):
    """One queue of the service."""

    @property
    def group(self) -> str:
        """The share group."""

    @property
    def has_joined(self) -> bool:
        """Whether the share group has assigned partitions."""


class RunningService(TopicOwner, Protocol):
    """An app as its extensions see it: its declarations, and sending.

    An extension may set `shares_together` when it starts, if partition n of all topics must be assigned to one
    instance.
    """

    shares_together: bool

    @property
    def group_id(self) -> str:
        """The consumer group."""

    @property
    def schema_registry(self) -> str | None:
        """The registry's address; None without one."""

    @property
    def topics(self) -> Mapping[str, Topic[Any, Any]]:
        """The declared topics, by name."""

    @property
    def routes(self) -> Sequence[Route]:
        """The handlers of its consumer group."""

    @property
    def queue_routes(self) -> Sequence[Route]:
        """The handlers of its queues."""

    @property
    def overrides(self) -> Mapping[Callable[..., Any], Any]:
        """Replacements of dependencies, by the function named in `Depends`."""

    @property
    def producer_options(self) -> dict[str, Any]:
        """Further options of its producer."""

    @property
    def consumer_options(self) -> dict[str, Any]:
        """Further options of its consumer."""

    @property
    def producer(self) -> "Producer":
        """The producer outside of transactions; `NotRunning` if the app does not run."""

    @property
    def worker(self) -> WorkerStatus | None:
        """The consume loop; None while it does not run or without handlers."""

    @property
    def queue_workers(self) -> Sequence[QueueStatus]:
        """The workers of its queues; none while it does not run."""

    @property
    def problem(self) -> BaseException | None:
        """Why it stopped by itself; None while it runs, and after it was stopped."""

    async def send_result(self, topic: Topic[K, V], value: V | None, key: K | None) -> None:
        """Send a handler's result; its record is finished on acknowledgement."""

    def read(
        self, topic: Topic[K, V], *, partitions: Iterable[int] | None = None
    ) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Read a topic up to the current end; see `App.read`."""
