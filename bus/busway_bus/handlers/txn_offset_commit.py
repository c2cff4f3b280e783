"""TxnOffsetCommit (key 28, versions 0-5): store offsets as part of a transaction (KIP-98).

Versions: 2 has the leader epoch (KIP-320), 3 has member and generation and is flexible (KIP-447), 4 may return
TRANSACTION_ABORTABLE, 5 adds the group to the transaction (KIP-890).
Behaviour: the offsets are pending until the transaction is committed; of several commits for one partition the last one
wins, in transactions or not. Members of an earlier generation, fenced producers, and groups outside the transaction are
refused.
"""

from busway_bus.coordinator.offset_commit_verification import TransactionalProducer
from busway_bus.groups.group import Committer
from busway_bus.groups.offsets import NewOffset, TopicPartition
from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.common.offset_commits import new_offsets
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

API = ApiKey.TXN_OFFSET_COMMIT
VERSIONS = (0, 5)
NEEDS = (
    Access(Operation.WRITE, Resource.TRANSACTIONAL_ID),
    Access(Operation.READ, Resource.GROUP),
    Access(Operation.READ, Resource.TOPIC),
)
LOADING_SINCE = 2
ABORTABLE_SINCE = 4
ADDS_SINCE = 5


async def handle(request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    offsets = new_offsets(context.node.image, ((topic.name, topic.partitions) for topic in request.topics))
    codes: dict[TopicPartition, ErrorCode] = {}
    context.node.groups.connections.lives(context.peer, (request.group_id, request.member_id))
    if offsets:
        try:
            codes = await _commit(request, offsets, context)
        except KafkaError as problem:
            codes = dict.fromkeys(offsets, problem.code)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=_known(
                            codes.get((topic.name, partition.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                            context.api_version,
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _commit(
    request: TxnOffsetCommitRequest, offsets: dict[TopicPartition, NewOffset], context: RequestContext
) -> dict[TopicPartition, ErrorCode]:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    return await context.node.groups.commit_in_transaction(
        request.group_id,
        Committer(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            epoch=request.generation_id,
            version=context.api_version,
            transactional=True,
            host=context.client_host,
        ),
        offsets,
        producer=TransactionalProducer(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            epoch=request.producer_epoch,
        ),
        verifier=context.node.transactions,
        add=context.api_version >= ADDS_SINCE,
    )


def _known(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return code
