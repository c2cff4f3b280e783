"""ListTransactions (key 66, versions 0-2): the transactions of this broker (KIP-664).

Versions: 1 filters by age (KIP-994), 2 by a regular expression that the whole transactional id matches (KIP-1152).
Behaviour: unknown states of the filter are returned; an age counts from the first partition. Expressions are RE2's,
matched in time linear in pattern and id; they need the extra `patterns`, and are refused without it.
"""

import logging
from collections.abc import Awaitable, Generator
from typing import Final

from busway_bus.handlers.common.context import Large, RequestContext, finished
from busway_bus.kernel.patterns import BadPattern, Pattern
from busway_bus.security.operations import Access, Operation, Resource
from busway_bus.transactions.states import BY_NAME
from busway_bus.transactions.transaction import Transaction
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionState,
)

logger = logging.getLogger("busway.transactions")

API = ApiKey.LIST_TRANSACTIONS
VERSIONS = (0, 2)
NEEDS = (Access(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID),)
LISTED_AT_ONCE: Final = 100


def handle(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse | Awaitable[Large]:
    coordinator = context.node.transactions
    try:
        pattern = Pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
        transactions = coordinator.transactions()
    except BadPattern as problem:
        logger.warning("ListTransactions is refused: %s", problem)
        return _refused(ErrorCode.INVALID_REGULAR_EXPRESSION)
    except KafkaError as problem:
        return _refused(problem.code)
    steps = _listed(transactions, request, pattern, coordinator.runtime.now())
    return context.in_slices(steps) if len(transactions) > LISTED_AT_ONCE else finished(steps)


def _refused(code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code, unknown_state_filters=[], transaction_states=[])


def _listed(
    transactions: list[tuple[str, Transaction]],
    request: ListTransactionsRequest,
    pattern: Pattern | None,
    now: int,
) -> Generator[None, None, ListTransactionsResponse]:
    states = {BY_NAME[name] for name in request.state_filters if name in BY_NAME}
    producer_ids = frozenset(request.producer_id_filters)
    listed = []
    for transactional_id, transaction in transactions:
        if (
            (not producer_ids or transaction.producer_id in producer_ids)
            and (not request.state_filters or transaction.state in states)
            and (request.duration_filter < 0 or now - transaction.started_ms > request.duration_filter)
            and (pattern is None or pattern.matches(transactional_id))
        ):
            listed.append(
                ListTransactionState(
                    transactional_id=transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state.shown,
                )
            )
        yield
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=list(dict.fromkeys(name for name in request.state_filters if name not in BY_NAME)),
        transaction_states=listed,
    )
