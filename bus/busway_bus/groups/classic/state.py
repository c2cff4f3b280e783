"""The state of a classic group, without its transitions.

What lives here: a generation, its views and checks. What does not: transitions (`group`).
"""

from busway_bus.groups.classic.member import Member
from busway_bus.groups.classic.members import Roster
from busway_bus.groups.classic.states import State
from busway_bus.groups.group import Committer, Group, GroupKind
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.offsets import CommittedOffset
from busway_bus.groups.records import Change, GroupMetadataKey
from busway_protocol.assignors.consumer_protocol import PROTOCOL_TYPE
from busway_protocol.errors import ErrorCode, KafkaError


class ClassicView(Group):
    """One group.

    Attributes:
        subscribed: the topics of this generation's members; None if they cannot be decoded.
    """

    kind = GroupKind.CLASSIC

    def __init__(self, group_id: str, memory: GroupMemory) -> None:
        super().__init__(group_id)
        self.state = State.EMPTY
        self.state_since_ms = 0
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.roster = Roster(memory)
        self.subscribed: frozenset[str] | None = None

    @property
    def state_name(self) -> str:
        """The state's name in Kafka."""
        return self.state.value

    @property
    def listed_type(self) -> str:
        """Its members' protocol type; empty for a group that only has offsets."""
        return self.protocol_type or ""

    @property
    def empty(self) -> bool:
        """Whether it has no members."""
        return self.state is State.EMPTY

    @property
    def unused(self) -> bool:
        """Whether it has no members and no handed-out member ids."""
        return self.empty and not self.roster.pending

    @property
    def replaceable(self) -> bool:
        """Whether it never had a member."""
        return self.unused and self.protocol_type is None and self.generation == 0

    @property
    def members(self) -> dict[str, Member]:
        """The members by id."""
        return self.roster.members

    def check_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Check that this is a member of this generation."""
        error = self.roster.identity_error(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def check_commit(self, committer: Committer, now: int) -> None:
        """Check a commit, by a member or to an empty group.

        A commit outside a transaction extends the member's session.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or REBALANCE_IN_PROGRESS.
        """
        commit = self._commit_in_transaction if committer.transactional else self._commit
        code = commit(committer, now)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)

    def _commit_in_transaction(self, committer: Committer, now: int) -> ErrorCode:
        """Check a commit in a transaction (KIP-447).

        A member of this generation may commit, and any client to an empty group. As in Kafka, producers before
        TxnOffsetCommit 3 name no member, and are not checked.
        """
        unnamed = not committer.member_id and committer.instance_id is None
        if committer.epoch < 0 and (unnamed or self.state is State.EMPTY):
            return ErrorCode.NONE
        return self.check_member(committer.member_id, committer.instance_id, committer.epoch)

    def _commit(self, committer: Committer, now: int) -> ErrorCode:
        if committer.epoch < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        if committer.epoch < 0 and not committer.member_id and committer.instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self.check_member(committer.member_id, committer.instance_id, committer.epoch)
        if error is ErrorCode.NONE and self.state is State.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        if error is ErrorCode.NONE:
            self.roster.touch(self.members[committer.member_id], now)
        return error

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Allow every fetch: classic members do not identify themselves."""

    def check_offset_delete(self) -> None:
        """Check that offsets may be deleted: members are consumers, or absent.

        Raises:
            KafkaError: NON_EMPTY_GROUP.
        """
        if self.state is not State.EMPTY and self.protocol_type != PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def ages_from(self, topic: str, committed: CommittedOffset) -> int | None:
        """Return when an offset began to age; None while it is needed.

        Without members, it is when the last one left, or a later commit. Kafka would drop an offset that an
        administrator set on a group that was empty for long. With members, it is the commit, for topics without
        subscribers.
        """
        if self.protocol_type is None:
            # Committed by a consumer without group membership.
            return committed.commit_timestamp_ms
        if self.state is State.EMPTY:
            return max(self.state_since_ms, committed.commit_timestamp_ms)
        if self.state is State.STABLE and self.protocol_type == PROTOCOL_TYPE and not self.reads(topic):
            return committed.commit_timestamp_ms
        return None

    def reads(self, topic: str) -> bool:
        """Whether members subscribe to the topic. Undecodable subscriptions count for any."""
        if self.subscribed is None:
            return self.protocol_type == PROTOCOL_TYPE
        return topic in self.subscribed

    def tombstones(self) -> tuple[Change, ...]:
        """Return the tombstone of its record."""
        return ((GroupMetadataKey(group=self.group_id), None),)
