"""Whose turn it is, as the storage topics see it: one worker of a group writes, and those before it are fenced.

What lives here: the names of transactional ids, and the producer that writes the configs in transactions of its own, as the leader of a
Kafka Connect cluster does with `exactly.once.source.support` prepared or enabled. What does not: whose turn it is (`worker`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from busway import (
    Admin,
    BrokerError,
    CommitFailed,
    Consumer,
    Producer,
    ProducerFenced,
    TopicPartition,
    TransactionFailed,
)
from busway_connect.connector import Retriable

NOT_ACTIVE: Final = "Cannot complete request momentarily: this worker stands by for another one of its group, or is taking over just now"
_AT_ONCE: Final = 20
"""Producers that are fenced at the same time."""
CLOSE_S: Final = 5.0
"""How long the end of a transactional producer may take; what is open then is aborted by the next of its name, or its timeout."""


class TurnOver(Retriable):
    """This worker stands by: another one of its group works, or it is not known which."""


_SUPERSEDED: Final = frozenset(
    {
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
        "PRODUCER_FENCED",
        "UNKNOWN_PRODUCER_ID",
    }
)
"""What brokers say of a producer whose transaction is over: another one has its id, its time-out expired, or the id was not used for a week."""


def superseded(problem: BaseException) -> bool:
    """Whether a producer cannot go on, and a new one of its name could."""
    if isinstance(problem, TurnOver | ProducerFenced):
        return True
    codes = (getattr(error, "code", None) for error in (problem, problem.__cause__))
    return isinstance(problem, TransactionFailed) and any(
        code is not None and code.name in _SUPERSEDED for code in codes
    )


class Writer(Protocol):
    """What a storage topic is written with."""

    async def send_and_wait(self, topic: str, value: bytes | None, key: bytes | None) -> Any:
        """Write a record, and wait for the acknowledgement."""


def id_of_task(group_id: str, connector: str, task: int = 0) -> str:
    """The transactional id of a source's task, Kafka Connect's."""
    return f"{group_id}-{connector}-{task}"


def id_of_leader(group_id: str) -> str:
    """The transactional id of the worker that works, Kafka Connect's."""
    return f"connect-cluster-{group_id}"


class Leader:
    """Writes one record after the other, each in a transaction.

    A worker that starts fences the one before it. A fenced worker checks whether it still leads, as its transactions may have been
    aborted by hand, and only then initialises the id again.

    Args:
        confirm: raises TurnOver unless it is this worker's turn.
    """

    def __init__(self, bootstrap: str, group_id: str, client_id: str, confirm: Callable[[], Awaitable[None]]) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._transactional_id = id_of_leader(group_id)
        self._producer = self._make()
        self._confirm = confirm
        self._one_at_a_time = asyncio.Lock()

    def _make(self) -> Producer:
        return Producer(
            self._bootstrap, client_id=self._client_id, linger_ms=0, transactional_id=self._transactional_id
        )

    async def __aenter__(self) -> "Leader":
        await self._producer.start()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self._producer.stop(CLOSE_S)

    async def send_and_wait(self, topic: str, value: bytes | None, key: bytes | None) -> None:
        """Write a record.

        Raises:
            TurnOver: another worker has taken over.
            BrokerError, MessageTooLarge: the record is refused.
        """
        async with self._one_at_a_time:
            try:
                await self._write(topic, value, key)
            except TransactionFailed as problem:
                if not superseded(problem):
                    raise (problem.__cause__ if isinstance(problem.__cause__, BrokerError) else problem) from None
                await self._confirm()
                await self._producer.stop(CLOSE_S)
                self._producer = self._make()
                await self._producer.start()
                await self._confirm()
                await self._write(topic, value, key)

    async def _write(self, topic: str, value: bytes | None, key: bytes | None) -> None:
        async with self._producer.transaction():
            await self._producer.send(topic, value, key)


async def fence(admin: Admin, transactional_ids: Sequence[str]) -> None:
    """End what producers of these names have open, and let them write nothing more; one that never was is none.

    Raises:
        BrokerError: one cannot be fenced.
    """
    for first in range(0, len(transactional_ids), _AT_ONCE):
        await asyncio.gather(
            *(_fence(admin, transactional_id) for transactional_id in transactional_ids[first : first + _AT_ONCE])
        )


async def _fence(admin: Admin, transactional_id: str) -> None:
    try:
        await admin.abort_transaction(transactional_id)
    except BrokerError as problem:
        if problem.code.name != "TRANSACTIONAL_ID_NOT_FOUND":
            raise


async def confirm_turn(consumer: Consumer, topic: str, over: asyncio.Event) -> None:
    """Ask the group: a worker that was frozen may be out of it and not know yet.

    Args:
        consumer: who has the topic works.
        over: set when the leadership ends; bounds every wait.

    Raises:
        TurnOver: another worker has its turn, or is getting it.
        BuswayError: the group cannot be asked.
    """
    asked = asyncio.ensure_future(consumer.commit({TopicPartition(topic, 0): 0}))
    ended = asyncio.ensure_future(over.wait())
    try:
        await asyncio.wait([asked, ended], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (asked, ended):
            task.cancel()
        await asyncio.wait([asked, ended])
    if over.is_set() or asked.cancelled() or isinstance(asked.exception(), CommitFailed):
        raise TurnOver(NOT_ACTIVE)
    asked.result()
