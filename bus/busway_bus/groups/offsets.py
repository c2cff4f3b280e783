"""A committed offset.

Here: the value, its record.
Not here: the tables (`shard`), expiry (`expiry`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from busway_bus.groups.records import OffsetCommitKey, OffsetCommitValue
from busway_protocol.errors import ErrorCode
from busway_protocol.types import ZERO_UUID

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A group's committed offset for one partition.

    Attributes:
        topic_id: zero if unnamed in the commit.
        expire_timestamp_ms: set by the client (OffsetCommit 2 to 4); -1 for the broker's settings.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    topic_id: UUID = ZERO_UUID
    expire_timestamp_ms: int = -1

    @classmethod
    def from_record(cls, value: OffsetCommitValue) -> "CommittedOffset":
        return cls(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp_ms=value.commit_timestamp,
            topic_id=value.topic_id,
            expire_timestamp_ms=value.expire_timestamp,
        )

    def record(self) -> OffsetCommitValue:
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_timestamp_ms,
            topic_id=self.topic_id,
            expire_timestamp=self.expire_timestamp_ms,
        )

    def of_topic(self, topic_id: UUID) -> bool:
        """Whether it belongs to this topic id; an unknown id matches any."""
        return ZERO_UUID in {self.topic_id, topic_id} or self.topic_id == topic_id


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOffset:
    """An offset that a client commits.

    Attributes:
        topic_id: zero if unknown.
        retention_ms: of OffsetCommit 2 to 4; negative for the broker's settings.
    """

    offset: int
    leader_epoch: int
    metadata: str
    topic_id: UUID
    retention_ms: int

    def committed(self, wall_ms: int) -> CommittedOffset:
        return CommittedOffset(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp_ms=wall_ms,
            topic_id=self.topic_id,
            expire_timestamp_ms=-1 if self.retention_ms < 0 else wall_ms + self.retention_ms,
        )


NewOffsets = Mapping[TopicPartition, NewOffset]
OffsetErrors = dict[TopicPartition, ErrorCode]


def offset_record(
    group_id: str, topic_partition: TopicPartition, offset: NewOffset, wall_ms: int, metadata_bytes_max: int
) -> tuple[ErrorCode, tuple[OffsetCommitKey, OffsetCommitValue] | None]:
    """Return a commit's record, or OFFSET_METADATA_TOO_LARGE."""
    if len(offset.metadata.encode()) > metadata_bytes_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE, None
    topic, partition = topic_partition
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return ErrorCode.NONE, (key, offset.committed(wall_ms).record())
