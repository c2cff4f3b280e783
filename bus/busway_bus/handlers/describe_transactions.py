"""DescribeTransactions (key 65, version 0): the state of transactions by name (KIP-664).

Behaviour: while a transaction is ending, the partitions without a marker are shown. A repeated id is described once
(Kafka: each mention). COORDINATOR_LOAD_IN_PROGRESS (retriable) for an id that would make the response too large.
"""

import contextlib
from collections.abc import Awaitable, Generator
from typing import Final

from busway_bus.handlers.common.context import Large, RequestContext, finished
from busway_bus.handlers.common.response_room import AnswerRoom
from busway_bus.security.operations import Access, Operation, Resource
from busway_bus.transactions.transaction import by_topic
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionState,
    TopicData,
)

API = ApiKey.DESCRIBE_TRANSACTIONS
VERSIONS = (0, 0)
NEEDS = (Access(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID), Access(Operation.DESCRIBE, Resource.TOPIC))
DESCRIBED_AT_ONCE: Final = 20
"""Transactions, of 100 partitions each, described between two yields."""
_PARTITIONS_AT_ONCE: Final = 100
ROW_BYTES: Final = 256
"""Approximate bytes of a transaction or a partition with its topic."""


def handle(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse | Awaitable[Large]:
    steps = _response(request, context)
    return context.in_slices(steps) if _is_much(request.transactional_ids, context) else finished(steps)


def _is_much(transactional_ids: list[str], context: RequestContext) -> bool:
    effort = len(transactional_ids)
    for transactional_id in transactional_ids[:DESCRIBED_AT_ONCE]:
        with contextlib.suppress(KafkaError):
            known, _ = context.node.transactions.transaction(transactional_id)
            effort += len(known.partitions) // _PARTITIONS_AT_ONCE
    return effort > DESCRIBED_AT_ONCE


def _response(
    request: DescribeTransactionsRequest, context: RequestContext
) -> Generator[None, None, DescribeTransactionsResponse]:
    states: list[DescribeTransactionState] = []
    room = AnswerRoom()
    for transactional_id in dict.fromkeys(request.transactional_ids):
        states.append(_described(transactional_id, context, room))
        yield
    return DescribeTransactionsResponse(transaction_states=states)


def _described(transactional_id: str, context: RequestContext, room: AnswerRoom) -> DescribeTransactionState:
    answer = DescribeTransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
    try:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        known, partitions = context.node.transactions.transaction(transactional_id)
        if not room.take(ROW_BYTES * (1 + len(partitions))):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    except KafkaError as problem:
        answer.error_code = problem.code
        return answer
    answer.transaction_state = known.state.shown
    answer.transaction_timeout_ms = known.timeout_ms
    answer.transaction_start_time_ms = known.started_ms
    answer.producer_id, answer.producer_epoch = known.producer_id, known.epoch
    answer.topics = [TopicData(topic=part.topic, partitions=part.partition_ids) for part in by_topic(partitions)]
    return answer
