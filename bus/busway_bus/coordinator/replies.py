"""Answers to those who wait for a coordinator.

What lives here: giving them out when they are durable, and which error is told of a log that refuses. What does not: when that is
(`runtime`), and the answers.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from busway_bus.kernel.decision import Waiter
from busway_protocol.errors import ErrorCode, KafkaError

Durable = asyncio.Future[None]
"""Done when all that was appended up to some record is durable; its exception says why that will never be."""
_NOT_HERE: Final = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER}
"""What an append is refused with where another broker may be the coordinator; after all else this one may be so again, as in Kafka."""

_OF_PRODUCERS: Final = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
"""What is no matter of the log, but of whose transaction it is."""


def refusal(problem: KafkaError) -> KafkaError:
    """What a client is told of a log that refuses: to look for the coordinator again, or to come again."""
    if problem.code in _OF_PRODUCERS:
        return problem
    code = ErrorCode.NOT_COORDINATOR if problem.code in _NOT_HERE else ErrorCode.COORDINATOR_NOT_AVAILABLE
    return KafkaError(code, problem.message)


async def durably(durable: Durable | None) -> None:
    """Return when it is durable, at once where it is already.

    Raises:
        KafkaError: it will never be; see `refusal`.
    """
    if durable is not None:
        try:
            await asyncio.shield(durable)
        except KafkaError as problem:
            raise refusal(problem) from problem


def answer(due: Iterable[tuple[Waiter, Any]], durable: Durable | None) -> None:
    """Answer requests that were parked, or refuse them where what they would be told will never be durable."""
    problem = durable.exception() if durable is not None else None
    if isinstance(problem, KafkaError):
        fail((waiter for waiter, _ in due), refusal(problem))
        return
    for waiter, reply in due:
        if not waiter.done():
            waiter.set_result(reply)


def fail(waiters: Iterable[Waiter], problem: KafkaError) -> None:
    """Refuse requests that were parked."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(problem)
            waiter.exception()  # nobody may be there to take it
