"""The state of a classic group.

Here: a generation, its views and checks.
Not here: transitions (`group`).
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
    """A classic group without its transitions.

    Attributes:
        subscribed: topics of this generation's members; None if undecodable.
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
        return self.state.value

    @property
    def listed_type(self) -> str:
        """The protocol type; empty for a group with offsets only."""
        return self.protocol_type or ""

    @property
    def empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def unused(self) -> bool:
        return self.empty and not self.roster.pending

    @property
    def replaceable(self) -> bool:
        return self.unused and self.protocol_type is None and self.generation == 0

    @property
    def members(self) -> dict[str, Member]:
        return self.roster.members

    def check_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        error = self.roster.identity_error(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def check_commit(self, committer: Committer, now: int) -> None:
        """Check a commit, by a member or to an empty group.

        Outside a transaction it extends the member's session.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
        """
        commit = self._commit_in_transaction if committer.transactional else self._commit
        code = commit(committer, now)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)

    def _commit_in_transaction(self, committer: Committer, now: int) -> ErrorCode:
        """Check a commit in a transaction (KIP-447).

        Producers before TxnOffsetCommit 3 name no member and are not checked, as in Kafka.
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
        """Allow every fetch."""

    def check_offset_delete(self) -> None:
        """Allow it for consumers or an empty group; raise NON_EMPTY_GROUP."""
        if self.state is not State.EMPTY and self.protocol_type != PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def ages_from(self, topic: str, committed: CommittedOffset) -> int | None:
        """Return when an offset began to age, ms; None while needed.

        Without members: when the last one left, or a later commit (Kafka drops an administrator's commit to a long
        empty group). With members: the commit, for topics without subscribers.
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
        """Whether members subscribe to the topic; if undecodable, to any."""
        if self.subscribed is None:
            return self.protocol_type == PROTOCOL_TYPE
        return topic in self.subscribed

    def tombstones(self) -> tuple[Change, ...]:
        return ((GroupMetadataKey(group=self.group_id), None),)
