"""A classic group as it stands: what is seen of it, and what it lets be done with its offsets.

What lives here: what a group keeps of its generation, and the answers that only look at that. What does not: what moves it (`group`).
"""

from busway_bus.groups.classic.member import Member
from busway_bus.groups.classic.members import Roster
from busway_bus.groups.classic.states import State
from busway_bus.groups.group import Committer, Group, GroupKind
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.offsets import CommittedOffset
from busway_bus.groups.record_serde import Change
from busway_bus.groups.records import GroupMetadataKey
from busway_protocol.assignors.consumer_protocol import PROTOCOL_TYPE
from busway_protocol.errors import ErrorCode, KafkaError


class ClassicView(Group):
    """One group.

    Attributes:
        subscribed: the topics of this generation's members; None when they cannot be told.
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
        """Its state as Kafka calls it."""
        return self.state.value

    @property
    def listed_type(self) -> str:
        """What its members said they are; nothing is known of a group that only keeps offsets."""
        return self.protocol_type or ""

    @property
    def empty(self) -> bool:
        """Whether it has no members."""
        return self.state is State.EMPTY

    @property
    def unused(self) -> bool:
        """Whether nobody is in it, nor was handed an id to come in with."""
        return self.empty and not self.roster.pending

    @property
    def replaceable(self) -> bool:
        """Whether no member was ever in it."""
        return self.unused and self.protocol_type is None and self.generation == 0

    @property
    def members(self) -> dict[str, Member]:
        """The members by id."""
        return self.roster.members

    def check_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether this is a member of this generation."""
        error = self.roster.identity_error(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def check_commit(self, committer: Committer, now: int) -> None:
        """Whether offsets may be committed: by a member, which shows so that it is alive, or by anyone while it is empty.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or REBALANCE_IN_PROGRESS.
        """
        commit = self._commit_in_transaction if committer.transactional else self._commit
        code = commit(committer, now)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)

    def _commit_in_transaction(self, committer: Committer, now: int) -> ErrorCode:
        """Within a transaction (KIP-447) by a member of this generation, or by anyone while it is empty. Producers that cannot say whose
        offsets they are, before TxnOffsetCommit 3, are believed, as in Kafka."""
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
        """Offsets may be told to anyone: classic members do not say who they are."""

    def check_offset_delete(self) -> None:
        """Whether offsets may be forgotten: its members are consumers, whose topics can be told, or it has none.

        Raises:
            KafkaError: NON_EMPTY_GROUP.
        """
        if self.state is not State.EMPTY and self.protocol_type != PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def ages_from(self, topic: str, committed: CommittedOffset) -> int | None:
        """When an offset began to age; None while it is needed.

        Without members that is after the last left, or after the commit if that came later: Kafka would drop what an administrator
        has set on a group that was empty for long. With members it is after the commit, for topics they do not read.
        """
        if self.protocol_type is None:
            # Committed by a consumer that only keeps its offsets here.
            return committed.commit_timestamp_ms
        if self.state is State.EMPTY:
            return max(self.state_since_ms, committed.commit_timestamp_ms)
        if self.state is State.STABLE and self.protocol_type == PROTOCOL_TYPE and not self.reads(topic):
            return committed.commit_timestamp_ms
        return None

    def reads(self, topic: str) -> bool:
        """Whether members read the topic; where a consumer group's subscriptions cannot be told, they may read any."""
        if self.subscribed is None:
            return self.protocol_type == PROTOCOL_TYPE
        return topic in self.subscribed

    def tombstones(self) -> tuple[Change, ...]:
        """What ends its record."""
        return ((GroupMetadataKey(group=self.group_id), None),)
