"""The interface to the node that decides on the cluster's metadata.

Here: `Controller`, commands, their inputs beside the image.
Not here: each command, the log of their records (`quorum.metadata_log`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from busway_bus.controller.heartbeats import BrokerHeartbeats
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.principal import BROKER, Principal
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import ClusterImage
from busway_protocol.errors import KafkaError

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Inputs of a decision beside the image.

    Attributes:
        config: for the defaults of the cluster.
        new_id: makes random ids.
        next_offset: of the decision's first record.
        heartbeats: of brokers at this controller; decisions change it.
        now_ms: monotonic.
        cluster_id: empty if unknown.
    """

    config: BrokerConfig
    new_id: Callable[[], UUID]
    next_offset: int
    heartbeats: BrokerHeartbeats = field(default_factory=BrokerHeartbeats)
    now_ms: int = 0
    cluster_id: str = ""

    @property
    def session_timeout_ms(self) -> int:
        timeout_ms: int = self.config.get("broker.session.timeout.ms")
        return timeout_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRequestContext:
    principal: Principal


ITSELF: Final = ControllerRequestContext(principal=BROKER)
"""For a broker's own requests."""


class Command(Protocol[R]):
    """A requested change of the cluster: a frozen value."""

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[R]:
        """Return the change's records, and the reply; change nothing but `heartbeats`.

        Raises:
            KafkaError: it is refused.
        """


@runtime_checkable
class LongCommand(Protocol):
    """A command that may change very many partitions.

    Most of them change in decisions of their own before that of the command, so that none holds the event loop.
    """

    def is_long(self, image: ClusterImage) -> bool:
        """Whether parts may be due."""

    def part(self, image: ClusterImage, surroundings: Surroundings, *, first: bool) -> Decision[bool]:
        """Return the next part of the change; the reply is whether another one may be due.

        Raises:
            KafkaError: the command is refused.
        """


class Controller(Protocol):
    """Decides on commands in order, each on the result of the earlier ones."""

    @property
    def leader_id(self) -> int:
        """The deciding node, -1 if unknown."""

    async def request(self, command: Command[R], context: ControllerRequestContext) -> R:
        """Decide on a command and carry it out, even if the caller is cancelled.

        Returns once it is durable and published on this node.

        Raises:
            KafkaError: raised by the decision; KAFKA_STORAGE_ERROR; REQUEST_TIMED_OUT while too many wait.
        """


def several(
    image: ClusterImage, decisions: Iterable[Callable[[ClusterImage], Decision[R]]]
) -> Decision[tuple[R | KafkaError, ...]]:
    """Combine decisions, each on the image after earlier ones; refusals are independent."""
    records: list[object] = []
    replies: list[R | KafkaError] = []
    pending: tuple[object, ...] = ()
    for decide in decisions:
        if pending:
            delta = Delta(image)
            for record in pending:
                delta.apply(record)
            image, pending = delta.image(), ()
        try:
            decision = decide(image)
        except KafkaError as problem:
            replies.append(problem)
            continue
        replies.append(decision.reply)
        pending = decision.records
        records += pending
    return Decision(records=tuple(records), reply=tuple(replies))


def only_checked(decision: Decision[R], *, validate_only: bool) -> Decision[R]:
    return Decision(reply=decision.reply) if validate_only else decision
