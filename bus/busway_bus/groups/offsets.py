"""A committed offset.

What lives here: the value, the one that a client asks for, and the way to and from a record. What does not: the tables (`shard`), expiry (`expiry`).
"""

from dataclasses import dataclass
from uuid import UUID

from busway_bus.groups.records import OffsetCommitKey, OffsetCommitValue
from busway_protocol.errors import ErrorCode
from busway_protocol.types import ZERO_UUID

Place = tuple[str, int]
"""A topic's name and the number of a partition of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """How far a group has read one partition.

    Attributes:
        topic_id: which topic of that name it was; zero where the commit named no id.
        expire_timestamp_ms: when it expires, as the client asked (OffsetCommit 2 to 4); -1 where the broker's settings count.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    topic_id: UUID = ZERO_UUID
    expire_timestamp_ms: int = -1

    @classmethod
    def from_record(cls, value: OffsetCommitValue) -> "CommittedOffset":
        """What was written down."""
        return cls(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp_ms=value.commit_timestamp,
            topic_id=value.topic_id,
            expire_timestamp_ms=value.expire_timestamp,
        )

    def record(self) -> OffsetCommitValue:
        """As it is written down."""
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_timestamp_ms,
            topic_id=self.topic_id,
            expire_timestamp=self.expire_timestamp_ms,
        )

    def of_topic(self, topic_id: UUID) -> bool:
        """Whether it belongs to the topic with this id; an id that is not known on either side matches."""
        return ZERO_UUID in {self.topic_id, topic_id} or self.topic_id == topic_id


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOffset:
    """What a client asks to have stored.

    Attributes:
        topic_id: of the topic that the client means; zero where that is not known.
        retention_ms: how long it is kept (OffsetCommit 2 to 4), less than 0 for as long as the broker's settings say.
    """

    offset: int
    leader_epoch: int
    metadata: str
    topic_id: UUID
    retention_ms: int

    def committed(self, wall_ms: int) -> CommittedOffset:
        """As it is stored at this moment."""
        return CommittedOffset(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp_ms=wall_ms,
            topic_id=self.topic_id,
            expire_timestamp_ms=-1 if self.retention_ms < 0 else wall_ms + self.retention_ms,
        )


def offset_record(
    group_id: str, place: Place, offset: NewOffset, wall_ms: int, metadata_bytes_max: int
) -> tuple[ErrorCode, tuple[OffsetCommitKey, OffsetCommitValue] | None]:
    """The record that a group's offset is kept as; none where its metadata is too long, and the code for it."""
    if len(offset.metadata.encode()) > metadata_bytes_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE, None
    topic, partition = place
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return ErrorCode.NONE, (key, offset.committed(wall_ms).record())
