"""Leadership as enforced by the storage topics: one worker of a group writes, earlier ones are fenced.

Here: transactional ids, and the producer that writes configs in transactions, like a Kafka Connect leader's with
`exactly.once.source.support` preparing or enabled.
Not here: electing the leader (`worker`).
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
    SecurityOptions,
    TopicPartition,
    TransactionFailed,
)
from busway_connect.connector import Retriable

NOT_ACTIVE: Final = "Cannot complete request momentarily: this worker stands by for another one of its group, or is taking over just now"
_AT_ONCE: Final = 20
CLOSE_S: Final = 5.0
"""Limit of closing a transactional producer; then its successor or the timeout aborts its transaction."""


class TurnOver(Retriable):
    """This worker stands by: another one works, or the leader is unknown."""


_SUPERSEDED: Final = frozenset(
    {
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
        "PRODUCER_FENCED",
        "UNKNOWN_PRODUCER_ID",
    }
)
"""Errors of a replaced, timed-out or, for a week, unused producer."""


def superseded(problem: BaseException) -> bool:
    """Return whether only a new producer of this id can continue."""
    if isinstance(problem, TurnOver | ProducerFenced):
        return True
    codes = (getattr(error, "code", None) for error in (problem, problem.__cause__))
    return isinstance(problem, TransactionFailed) and any(
        code is not None and code.name in _SUPERSEDED for code in codes
    )


class Writer(Protocol):
    async def send_and_wait(self, topic: str, value: bytes | None, key: bytes | None) -> Any:
        """Write a record and wait for its acknowledgement."""


def id_of_task(group_id: str, connector: str, task: int = 0) -> str:
    return f"{group_id}-{connector}-{task}"


def id_of_leader(group_id: str) -> str:
    return f"connect-cluster-{group_id}"


class Leader:
    """Writes records one at a time, each in a transaction.

    A starting worker fences its predecessor. A fenced worker initialises the id again only if it still leads, as an
    administrator may have aborted its transaction.

    Args:
        confirm: raises TurnOver unless this worker leads.
    """

    def __init__(
        self,
        bootstrap: str,
        group_id: str,
        client_id: str,
        confirm: Callable[[], Awaitable[None]],
        security: SecurityOptions | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._client_id = client_id
        self._transactional_id = id_of_leader(group_id)
        self._producer = self._make()
        self._confirm = confirm
        self._one_at_a_time = asyncio.Lock()

    def _make(self) -> Producer:
        return Producer(
            self._bootstrap,
            client_id=self._client_id,
            linger_ms=0,
            transactional_id=self._transactional_id,
            security=self._security,
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
    """Fence producers by id and abort their transactions, ignoring unknown ids; raises `BrokerError`."""
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
    """Ask the group whether this worker leads. A freeze may have removed it unnoticed.

    Args:
        consumer: its assignment to the topic means leadership.
        over: set at the leadership's end; ends every wait.

    Raises:
        TurnOver: another worker leads, or is taking over.
        BuswayError: the group is unreachable.
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
