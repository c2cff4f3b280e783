"""Acknowledgements of share groups in ShareFetch and ShareAcknowledge.

Here: checks, passing them to share partitions, another leader.
Not here: the responses (`share_fetch`, `share_acknowledge`).
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, Protocol
from uuid import UUID

from busway_bus.handlers.common.context import RequestContext
from busway_bus.kernel.limits import SHARE_MEMBER_ID_CHARS_MAX
from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.share.sessions import TopicIdPartition
from busway_bus.share.state import Acknowledgement, AcknowledgeType
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.share_groups import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint

RENEW_SINCE: Final = 2
ACKNOWLEDGED_TOGETHER: Final = 2_000
"""Acknowledgements between two yields, not within a partition."""
_MOVED: Final = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}

Refusal = KafkaError | None


class _Partition(Protocol):
    partition_index: int
    acknowledgement_batches: list[AcknowledgementBatch]


class Topic(Protocol):
    topic_id: UUID

    @property
    def partitions(self) -> Sequence[_Partition]: ...


def check_member(context: RequestContext, group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """Return the group and member of a request.

    UNSUPPORTED_VERSION if the cluster has no share groups, INVALID_REQUEST.
    """
    if context.node.image.features.get(SHARE_VERSION, 0) < 1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "share.version is not finalized: there are no share groups")
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names no group")
    if not member_id or len(member_id) > SHARE_MEMBER_ID_CHARS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"a member id has 1 to {SHARE_MEMBER_ID_CHARS_MAX} characters, not {member_id!r:.50}",
        )
    return group_id, member_id


def check_place(context: RequestContext, partition: TopicIdPartition) -> str:
    """Return a partition's topic name, or raise UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION."""
    name = context.node.image.names.get(partition[0])
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if context.node.image.partition(name, partition[1]) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return name


class Acknowledging:
    """The acknowledgements of one request: passed on at once, awaited later."""

    def __init__(self, context: RequestContext, group_id: str, member_id: str, *, renews: bool) -> None:
        self._context = context
        self._group_id = group_id
        self._member_id = member_id
        self._renews = renews
        self._outcomes: dict[TopicIdPartition, Refusal] = {}
        self._written: dict[TopicIdPartition, asyncio.Future[None]] = {}

    async def begin(self, topics: Iterable[Topic]) -> None:
        """Pass all acknowledgements to their share partitions.

        The last mention of a partition wins, as in Kafka; without acknowledgements only errors are returned.
        """
        acknowledged = {
            (topic.topic_id, partition.partition_index): partition.acknowledgement_batches
            for topic in topics
            for partition in topic.partitions
        }
        empty: list[TopicIdPartition] = []
        has_acknowledgements, count = False, 0
        for topic_partition, batches in acknowledged.items():
            try:
                if acknowledgements := self._checked(topic_partition, batches):
                    has_acknowledgements = True
                    share = self._context.node.shares.loaded(self._group_id, topic_partition)
                    self._written[topic_partition] = share.acknowledge(self._member_id, acknowledgements)
                else:
                    empty.append(topic_partition)
            except KafkaError as problem:
                self._outcomes[topic_partition] = problem
            count += 1 + sum(len(batch.acknowledge_types) for batch in batches)
            if count >= ACKNOWLEDGED_TOGETHER:
                count = 0
                await asyncio.sleep(0)
        if has_acknowledgements:
            self._outcomes |= dict.fromkeys(empty)

    def _checked(self, partition: TopicIdPartition, batches: Sequence[AcknowledgementBatch]) -> list[Acknowledgement]:
        if partition[0] not in self._context.node.image.names:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        before = -1
        for batch in batches:
            self._check(batch, before)
            before = batch.last_offset
        check_place(self._context, partition)
        return [
            Acknowledgement(first=batch.first_offset, last=batch.last_offset, types=batch.acknowledge_types)
            for batch in batches
        ]

    def _check(self, batch: AcknowledgementBatch, before: int) -> None:
        count, types = batch.last_offset - batch.first_offset + 1, batch.acknowledge_types
        highest = AcknowledgeType.RENEW if self._context.api_version >= RENEW_SINCE else AcknowledgeType.REJECT
        problem = None
        if count < 1 or batch.first_offset < max(before, 0):
            problem = "are no range behind the one before"
        elif not types or (len(types) > 1 and len(types) != count):
            problem = f"have {len(types)} acknowledgement types"
        elif min(types) < 0 or max(types) > highest:
            problem = f"have an acknowledgement type that is not 0 to {int(highest)}"
        elif AcknowledgeType.RENEW in types and not self._renews:
            problem = "are renewed, which the request does not say"
        if problem is not None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"offsets {batch.first_offset} to {batch.last_offset} {problem}"
            )

    async def finish(self) -> dict[TopicIdPartition, Refusal]:
        """Return the outcomes once durable."""
        for partition, written in self._written.items():
            try:
                await asyncio.shield(written)
            except KafkaError as problem:
                self._outcomes[partition] = problem
            else:
                self._outcomes[partition] = None
        return self._outcomes


class Leaders:
    """Other brokers that lead partitions of one response."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._endpoints: dict[int, NodeEndpoint] = {}

    def of(self, topic_partition: TopicIdPartition, problem: Refusal) -> LeaderIdAndEpoch:
        """Return a partition's leader, if the error redirects the client."""
        if problem is None or problem.code not in _MOVED:
            return LeaderIdAndEpoch()
        image = self._context.node.image
        name = image.names.get(topic_partition[0])
        partition = None if name is None else image.partition(name, topic_partition[1])
        if partition is None:
            return LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
        broker = image.brokers.get(partition.leader)
        address = None if broker is None else broker.addresses.get(self._context.listener)
        if broker is not None and address is not None:
            self._endpoints[broker.node_id] = NodeEndpoint(
                node_id=broker.node_id, host=address.host, port=address.port, rack=broker.rack
            )
        return LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)

    @property
    def endpoints(self) -> list[NodeEndpoint]:
        return list(self._endpoints.values())
