"""DescribeTransactions (key 65, version 0): the state of transactions by name (KIP-664).

Versions: 0 is the only one.
Behaviour: while a transaction is ending, the partitions that have no marker yet are shown.
*Not supported*: nothing is left out.
"""

from collections.abc import Awaitable, Generator
from typing import Final

from busway_bus.handlers.context import Large, RequestContext, finished
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
"""Transactions that are described while all others wait; of more, others get their turn between."""


def handle(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse | Awaitable[Large]:
    """Describe each."""
    steps = _response(request, context)
    return context.in_turns(steps) if len(request.transactional_ids) > DESCRIBED_AT_ONCE else finished(steps)


def _response(
    request: DescribeTransactionsRequest, context: RequestContext
) -> Generator[None, None, DescribeTransactionsResponse]:
    """The answer, with a stop after each; one that is named again is looked at once."""
    described: dict[str, DescribeTransactionState] = {}
    for transactional_id in request.transactional_ids:
        if transactional_id not in described:
            described[transactional_id] = _described(transactional_id, context)
            yield
    return DescribeTransactionsResponse(transaction_states=[described[name] for name in request.transactional_ids])


def _described(transactional_id: str, context: RequestContext) -> DescribeTransactionState:
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
    except KafkaError as problem:
        answer.error_code = problem.code
        return answer
    answer.transaction_state = known.state.shown
    answer.transaction_timeout_ms = known.timeout_ms
    answer.transaction_start_time_ms = known.started_ms
    answer.producer_id, answer.producer_epoch = known.producer_id, known.epoch
    answer.topics = [TopicData(topic=part.topic, partitions=part.partition_ids) for part in by_topic(partitions)]
    return answer
