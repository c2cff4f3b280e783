"""The interface to the one node that decides on the cluster's metadata.

What lives here: `Controller`, what a command is, and what it may use beside the picture. What does not: commands (the other modules of
this package), the log that their records go into (`quorum.metadata_log`), or where the controller is.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar
from uuid import UUID

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.principal import BROKER, Principal
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import ClusterImage
from busway_protocol.errors import KafkaError

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a decision may use beside the picture.

    Attributes:
        config: the controller's settings, for the defaults of the cluster.
        new_id: makes random identifiers.
        next_offset: of the metadata log, where the first record of the decision will be.
    """

    config: BrokerConfig
    new_id: Callable[[], UUID]
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRequestContext:
    """On whose behalf a command is given."""

    principal: Principal


ITSELF: Final = ControllerRequestContext(principal=BROKER)
"""A broker asks for what no client asked for."""


class Command(Protocol[R]):
    """What somebody wants to be true of the cluster: a frozen value."""

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[R]:
        """The records that make it true, and the reply; nothing is changed yet.

        Raises:
            KafkaError: it is refused.
        """


class Controller(Protocol):
    """Decides, one command after the other, each on what was decided before.

    Attributes:
        leader_id: the id of the node that decides now, -1 while none is known.
    """

    @property
    def leader_id(self) -> int:
        """See above."""

    async def request(self, command: Command[R], context: ControllerRequestContext) -> R:
        """Have a command decided and carried out; the reply comes when it is durable and followed by this node.

        Whoever asked may be cancelled at any time: the command is carried out all the same.

        Raises:
            KafkaError: what the decision raises, KAFKA_STORAGE_ERROR, or REQUEST_TIMED_OUT while too many wait.
        """


def several(
    image: ClusterImage, decisions: Iterable[Callable[[ClusterImage], Decision[R]]]
) -> Decision[tuple[R | KafkaError, ...]]:
    """One decision of many, each taken on the picture that those before it leave; one that is refused is so alone."""
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
    """The decision, or its reply alone where nothing is to be changed."""
    return Decision(reply=decision.reply) if validate_only else decision
