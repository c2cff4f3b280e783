"""Offsets in OffsetCommit and TxnOffsetCommit.

Here: a request's offsets without unknown partitions.
Not here: topic names (its handler), checks (`groups.shard`).
"""

from collections.abc import Iterable, Sequence

from busway_bus.groups.offsets import NewOffset, TopicPartition
from busway_bus.metadata.image import ClusterImage
from busway_protocol.messages.groups_classic import OffsetCommitRequestPartition
from busway_protocol.messages.transactions import TxnOffsetCommitRequestPartition

Requested = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition


def new_offsets(
    image: ClusterImage, topics: Iterable[tuple[str | None, Sequence[Requested]]], *, retention_ms: int = -1
) -> dict[TopicPartition, NewOffset]:
    """Convert the offsets of existing partitions.

    `topics`: (name or None, requested partitions). `retention_ms`: -1 for the broker's setting.
    """
    offsets: dict[TopicPartition, NewOffset] = {}
    for name, partitions in topics:
        topic = image.topics.get(name or "")
        if topic is None:
            continue
        for partition in partitions:
            if 0 <= partition.partition_index < len(topic.partitions):
                offsets[topic.name, partition.partition_index] = NewOffset(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.committed_metadata or "",
                    topic_id=topic.topic_id,
                    retention_ms=retention_ms,
                )
    return offsets
