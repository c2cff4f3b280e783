"""A running service, as its parts and extensions see it.

What lives here: `RunningService`, which every `App` is, and what it shows of its workers, as protocols. What does not: running it
(`application`), what a topic sees of its app (`model.topic`).
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
    """Show how far the handlers of partitions are."""

    def parked(self) -> Mapping[TopicPartition, int]:
        """Return for each partition how many records wait for their next attempt."""

    @property
    def outcomes(self) -> Outcomes | None:
        """What became of transactions; None where it makes none."""


class QueueStatus(Protocol):
    """Show one queue of the service."""

    @property
    def group(self) -> str:
        """The share group."""

    @property
    def has_joined(self) -> bool:
        """Whether the share group has assigned partitions."""


class RunningService(TopicOwner, Protocol):
    """Show an app to its extensions.

    It has what the app declares and what it sends with; every `App` is one.

    Attributes:
        shares_together: whether partition n of all topics must go to the same instance; an extension may set it when it starts.
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
        """The topics that it declares, by name."""

    @property
    def routes(self) -> Sequence[Route]:
        """The handlers of its consumer group."""

    @property
    def queue_routes(self) -> Sequence[Route]:
        """The handlers of its queues."""

    @property
    def overrides(self) -> Mapping[Callable[..., Any], Any]:
        """What stands in for a dependency, by the function that `Depends` names."""

    @property
    def producer_options(self) -> dict[str, Any]:
        """Further options of its producer."""

    @property
    def consumer_options(self) -> dict[str, Any]:
        """Further options of its consumer."""

    @property
    def producer(self) -> "Producer":
        """The producer of its records, but for those of transactions.

        Raises:
            NotRunning: the app is not running.
        """

    @property
    def worker(self) -> WorkerStatus | None:
        """The consume loop; None while it does not run or without handlers."""

    @property
    def queue_workers(self) -> Sequence[QueueStatus]:
        """The workers of its queues; none while it does not run."""

    @property
    def problem(self) -> BaseException | None:
        """Why it stopped by itself; None while it runs, and when it was stopped."""

    async def send_result(self, topic: Topic[K, V], value: V | None, key: K | None) -> None:
        """Send what a handler returned; its record is finished when that is acknowledged."""

    def read(
        self, topic: Topic[K, V], *, partitions: Iterable[int] | None = None
    ) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Read all records of a topic up to what is the end now; see `App.read`."""
