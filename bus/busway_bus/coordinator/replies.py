"""Replies to waiting requests of a coordinator.

Here: sending them once durable, errors of the log, waiting for the high watermark.
Not here: when (`runtime`), the replies.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from busway_bus.kernel.decision import Waiter
from busway_bus.replication.partition import Partition
from busway_bus.replication.partition_state import ACKS_ALL
from busway_protocol.errors import ErrorCode, KafkaError

Durable = asyncio.Future[None]
"""Done once everything appended up to a record is durable, or failed."""
_MOVED: Final = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER}
"""Errors after which another broker may be the coordinator, as in Kafka."""

_OF_PRODUCERS: Final = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
"""Errors that concern the producer, not the log."""


def refusal(problem: KafkaError) -> KafkaError:
    """Return the client's error for a log that refuses: look the coordinator up again, or retry."""
    if problem.code in _OF_PRODUCERS:
        return problem
    code = ErrorCode.NOT_COORDINATOR if problem.code in _MOVED else ErrorCode.COORDINATOR_NOT_AVAILABLE
    return KafkaError(code, problem.message)


def committed(replica: Partition, end_offset: int) -> Durable | None:
    """Return a future that is done once all records before an offset are committed; None if they are."""
    if replica.state.may_acknowledge(end_offset - 1, ACKS_ALL):
        return None
    durable: Durable = asyncio.get_running_loop().create_future()

    def settle(problem: KafkaError | None) -> None:
        if durable.done():
            return
        if problem is None:
            durable.set_result(None)
        else:
            durable.set_exception(problem)

    replica.acknowledgements.add(end_offset - 1, ACKS_ALL, settle)
    return durable


async def durably(durable: Durable | None, within_s: float | None = None) -> None:
    """Wait until everything appended is durable.

    KafkaError: it failed; COORDINATOR_NOT_AVAILABLE after `within_s`, as in Kafka. It may become durable later.
    """
    if durable is None:
        return
    try:
        async with asyncio.timeout(within_s):
            await asyncio.shield(durable)
    except TimeoutError:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too few replicas have the change yet") from None
    except KafkaError as problem:
        raise refusal(problem) from problem


def answer(responses: Iterable[tuple[Waiter, Any]], durable: Durable | None) -> None:
    """Complete parked requests, or fail them if not durable."""
    problem = durable.exception() if durable is not None else None
    if isinstance(problem, KafkaError):
        fail((waiter for waiter, _ in responses), refusal(problem))
        return
    for waiter, reply in responses:
        if not waiter.done():
            waiter.set_result(reply)


def fail(waiters: Iterable[Waiter], problem: KafkaError) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(problem)
            waiter.exception()  # asyncio logs an exception that is never retrieved
