"""What a group of any kind is to the partition that keeps it.

What lives here: the kinds with Kafka's names, the interface, and what a group of one kind answers to what only another serves. What does
not: any kind of group (`classic`, `modern` and what is built on it), the table of all (`shard`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeVar
from uuid import UUID

from busway_bus.groups.classic.requests import Join, JoinResult, Sync, SyncResult
from busway_bus.groups.offsets import CommittedOffset
from busway_bus.groups.record_serde import Change, Key, Value
from busway_bus.kernel.decision import Decision, Unanswered, Waiter
from busway_bus.kernel.fair_share import NOBODY
from busway_protocol.errors import ErrorCode, KafkaError

PlaceCheck = Callable[[str, UUID, int], None]
"""Whether the committer may commit for this partition of a topic, named with its id; raises KafkaError where not."""


class GroupKind(Enum):
    """The kinds, as ListGroups names them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """Who commits offsets.

    Attributes:
        epoch: the generation, or the member's epoch; less than 0 for one that is no member.
        version: of OffsetCommit, which members of some groups need a newer one of.
        transactional: whether a producer's transaction decides when the offsets count.
        host: from which it comes, whose share is taken by what a transaction commits.
    """

    member_id: str
    instance_id: str | None
    epoch: int
    version: int
    transactional: bool = False
    host: str = NOBODY


class Group(ABC):
    """One group.

    Attributes:
        kind: which kind it is.
        over: whether it was deleted: the records say that there is no such group any more.
    """

    kind: ClassVar[GroupKind]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.over = False

    # What can be seen of it

    @property
    @abstractmethod
    def state_name(self) -> str:
        """Its state as Kafka calls it."""

    @property
    @abstractmethod
    def listed_type(self) -> str:
        """Its protocol type as ListGroups tells it."""

    @property
    @abstractmethod
    def empty(self) -> bool:
        """Whether it has no members, and may be deleted."""

    @property
    def unused(self) -> bool:
        """Whether nothing is lost with it when it has no offsets any more."""
        return self.empty

    @property
    def replaceable(self) -> bool:
        """Whether it is here for its offsets alone, so that a group of any kind may be made of it."""
        return False

    # What is written down

    @abstractmethod
    def apply(self, key: Key, value: Value | None, now: int) -> None:
        """Let one of its records be in force, None where it was deleted."""

    @abstractmethod
    def tombstones(self) -> tuple[Change, ...]:
        """What ends all of its records, offsets aside."""

    # Time

    @abstractmethod
    def next_deadline(self) -> int | None:
        """When `tick` has something to do, or to look at, in ms; None for never."""

    @abstractmethod
    def tick(self, now: int) -> Decision[None]:
        """Do what is due."""

    def abandon(self) -> list[Waiter]:
        """This node looks after the group no longer: those that wait, whom nothing here will answer."""
        return []

    # Offsets

    @abstractmethod
    def check_commit(self, committer: Committer, now: int) -> PlaceCheck | None:
        """Whether offsets may be committed, which shows that a member is alive; what is to be asked for each partition beside, if anything.

        Raises:
            KafkaError: they may not.
        """

    @abstractmethod
    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whether offsets may be told to who says to be this member in this epoch; None and -1 for one that says nothing.

        Raises:
            KafkaError: they may not.
        """

    @abstractmethod
    def check_offset_delete(self) -> None:
        """Whether offsets may be forgotten of topics that it does not read.

        Raises:
            KafkaError: NON_EMPTY_GROUP.
        """

    @abstractmethod
    def reads(self, topic: str) -> bool:
        """Whether members read the topic."""

    @abstractmethod
    def ages_from(self, topic: str, committed: CommittedOffset) -> int | None:
        """When an offset of it began to age, by the wall clock; None while it is needed."""

    # What classic members ask for

    def join(self, request: Join, waiter: Waiter, now: int) -> Decision[JoinResult | Unanswered]:
        """Let a classic member join."""
        return Decision(reply=JoinResult(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id))

    def sync(self, request: Sync, waiter: Waiter, now: int) -> Decision[SyncResult | Unanswered]:
        """Hand in or ask for the assignments of classic members."""
        return Decision(reply=SyncResult(error=ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: int) -> ErrorCode:
        """Note that a classic member is alive."""
        return ErrorCode.UNKNOWN_MEMBER_ID

    def leave(self, identities: Sequence[tuple[str, str | None]], now: int) -> Decision[list[ErrorCode]]:
        """Take members out, each by its member id, or by its instance id alone where that is empty."""
        return Decision(reply=[ErrorCode.UNKNOWN_MEMBER_ID] * len(identities))


G = TypeVar("G", bound=Group)


def of_kind(group: Group | None, group_id: str, kind: type[G]) -> G:
    """The group where it is of this kind.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND.
    """
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, kind):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind.kind.value} group.")
    return group
