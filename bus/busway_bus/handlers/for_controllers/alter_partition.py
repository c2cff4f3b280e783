"""AlterPartition (key 56, versions 2-3): a leader changes the ISRs of its partitions (KIP-497).

Versions: 3 has the epochs of the brokers in the ISR (KIP-903).
Behaviour: as Kafka's controller. An epoch of the partition that is not the controller's newest is refused, so that two
changes never overlap. A fenced broker, or one that shuts down, enters no ISR: INELIGIBLE_REPLICA.
"""

import logging
from collections.abc import Iterator

from busway_bus.controller.isr_changes import ANY_EPOCH, AlterPartition, IsrChange
from busway_bus.handlers.common.context import RequestContext
from busway_bus.metadata.image import PartitionImage
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.partitions import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)

logger = logging.getLogger("busway.controller")

API = ApiKey.ALTER_PARTITION
VERSIONS = (2, 3)
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)
_WITH_EPOCHS = 3
_RACES = {ErrorCode.NOT_CONTROLLER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION}
"""Refusals that the leader resolves with newer metadata."""


async def handle(request: AlterPartitionRequest, context: RequestContext) -> AlterPartitionResponse:
    command = AlterPartition(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        changes=tuple(_changes(request, with_epochs=context.api_version >= _WITH_EPOCHS)),
    )
    try:
        replies = await context.node.controller.request(command, context.for_controller)
    except KafkaError as problem:
        return AlterPartitionResponse(error_code=problem.code, topics=[])
    for change, reply in zip(command.changes, replies, strict=True):
        if isinstance(reply, KafkaError):
            level = logging.DEBUG if reply.code in _RACES else logging.INFO
            text = "the ISR of partition %d of topic id %s, asked for by broker %d, is refused: %s"
            logger.log(level, text, change.partition_index, change.topic_id, request.broker_id, reply)
    rows = iter(replies)
    return AlterPartitionResponse(
        error_code=ErrorCode.NONE,
        topics=[
            AlterPartitionResponseTopic(
                topic_id=topic.topic_id,
                partitions=[_row(partition, next(rows)) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _changes(request: AlterPartitionRequest, *, with_epochs: bool) -> Iterator[IsrChange]:
    for topic in request.topics:
        for partition in topic.partitions:
            if with_epochs:
                isr = tuple((state.broker_id, state.broker_epoch) for state in partition.new_isr_with_epochs)
            else:
                isr = tuple((broker, ANY_EPOCH) for broker in partition.new_isr)
            yield IsrChange(
                topic_id=topic.topic_id,
                partition_index=partition.partition_index,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                isr=isr,
                recovery_state=partition.leader_recovery_state,
            )


def _row(
    partition: AlterPartitionRequestPartition, reply: PartitionImage | KafkaError
) -> AlterPartitionResponsePartition:
    if isinstance(reply, KafkaError):
        return AlterPartitionResponsePartition(
            partition_index=partition.partition_index,
            error_code=reply.code,
            leader_id=0,
            leader_epoch=0,
            isr=[],
            partition_epoch=0,
        )
    return AlterPartitionResponsePartition(
        partition_index=partition.partition_index,
        error_code=ErrorCode.NONE,
        leader_id=reply.leader,
        leader_epoch=reply.leader_epoch,
        isr=list(reply.isr),
        leader_recovery_state=reply.recovery_state,
        partition_epoch=reply.partition_epoch,
    )
