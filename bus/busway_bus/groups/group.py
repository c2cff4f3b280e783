"""The interface of all kinds of groups.

Here: the kinds, default errors of unsupported requests.
Not here: the kinds' rules (`classic`, `modern`, `share`), the table (`shard`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeVar
from uuid import UUID

from busway_bus.groups.offsets import CommittedOffset
from busway_bus.groups.records import Change, Key, Value
from busway_bus.groups.requests import Join, JoinResult, Sync, SyncResult
from busway_bus.kernel.decision import Decision, Unanswered, Waiter
from busway_bus.kernel.fair_share import NOBODY
from busway_protocol.errors import ErrorCode, KafkaError

PlaceCheck = Callable[[str, UUID, int], None]
"""Checks a commit by topic name, topic id and partition; raises KafkaError."""


class GroupKind(Enum):
    """The kinds, as ListGroups names them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """The sender of a commit.

    Attributes:
        epoch: generation or member epoch; negative without a member.
        version: of OffsetCommit; members of some groups need a newer one.
        host: its quota is charged for offsets of a transaction.
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
        over: its records were deleted.
    """

    kind: ClassVar[GroupKind]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.over = False

    # Views

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state's name in Kafka."""

    @property
    @abstractmethod
    def listed_type(self) -> str:
        """The protocol type in ListGroups."""

    @property
    @abstractmethod
    def empty(self) -> bool:
        """Whether it has no members, and may be deleted."""

    @property
    def unused(self) -> bool:
        """Whether it may be deleted once it has no offsets."""
        return self.empty

    @property
    def replaceable(self) -> bool:
        """Whether another kind may replace it: it has only offsets."""
        return False

    # Records

    @abstractmethod
    def apply(self, key: Key, value: Value | None, now: int) -> None:
        """Apply a record; None is a tombstone."""

    @abstractmethod
    def tombstones(self) -> tuple[Change, ...]:
        """Return the tombstones of all records, except those of offsets."""

    # Time

    @abstractmethod
    def next_deadline(self) -> int | None:
        """Return when `tick` is due, or earlier; None for never."""

    @abstractmethod
    def tick(self, now: int) -> Decision[None]:
        """Run due timers."""

    def abandon(self) -> list[Waiter]:
        """Return all waiters: the group has another coordinator."""
        return []

    # Offsets

    @abstractmethod
    def check_commit(self, committer: Committer, now: int) -> PlaceCheck | None:
        """Check that offsets may be committed; extend a classic member's session.

        Returns:
            A check for each partition, or None.

        Raises:
            KafkaError: the commit is not allowed.
        """

    @abstractmethod
    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise unless this member may fetch offsets in this epoch.

        `member_id`: None, with epoch -1, for an unnamed client.
        """

    @abstractmethod
    def check_offset_delete(self) -> None:
        """Raise NON_EMPTY_GROUP unless offsets of topics without subscribers may be deleted."""

    @abstractmethod
    def reads(self, topic: str) -> bool:
        """Whether members subscribe to the topic."""

    @abstractmethod
    def ages_from(self, topic: str, committed: CommittedOffset) -> int | None:
        """Return when an offset began to age (wall ms); None while needed."""

    # Requests of classic members

    def join(self, request: Join, waiter: Waiter, now: int) -> Decision[JoinResult | Unanswered]:
        return Decision(reply=JoinResult(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id))

    def sync(self, request: Sync, waiter: Waiter, now: int) -> Decision[SyncResult | Unanswered]:
        return Decision(reply=SyncResult(error=ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: int) -> ErrorCode:
        return ErrorCode.UNKNOWN_MEMBER_ID

    def leave(self, identities: Sequence[tuple[str, str | None]], now: int) -> Decision[list[ErrorCode]]:
        """Remove members by id, or by instance id alone (administrator's call)."""
        return Decision(reply=[ErrorCode.UNKNOWN_MEMBER_ID] * len(identities))


G = TypeVar("G", bound=Group)


def of_kind(group: Group | None, group_id: str, kind: type[G]) -> G:
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, kind):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind.kind.value} group.")
    return group
