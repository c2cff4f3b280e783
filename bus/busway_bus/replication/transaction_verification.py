"""Verification with the transaction coordinator before a transaction's first batch (KIP-890).

Here: the order of a producer's batches, errors for old and new clients.
Not here: invalidation (`log.producer_state`), the request (`handlers.produce`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from busway_bus.kernel.transactions import TransactionVerifier
from busway_protocol.errors import ErrorCode, KafkaError

_ASK_AGAIN: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TransactionVerifications:
    """Pending verifications of this node, by producer id.

    Attributes:
        verifier: client of the coordinator, if any.
    """

    def __init__(self) -> None:
        self.verifier: TransactionVerifier | None = None
        self._last_tasks: dict[int, asyncio.Task[None]] = {}
        """The newest task by producer id."""
        self._tasks: set[asyncio.Task[None]] = set()

    def waiting(self, producer_id: int) -> bool:
        return producer_id in self._last_tasks

    def in_turn(self, producer_id: int, work: Callable[[], Awaitable[None]]) -> "asyncio.Task[None]":
        """Run `work` after a producer's pending work, even for a disconnected client."""
        task = asyncio.ensure_future(self._after(self._last_tasks.get(producer_id), work))
        self._last_tasks[producer_id] = task
        self._tasks.add(task)
        task.add_done_callback(lambda over: self._over(producer_id, over))
        return task

    @staticmethod
    async def _after(earlier: "asyncio.Task[None] | None", work: Callable[[], Awaitable[None]]) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        await work()

    def _over(self, producer_id: int, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if self._last_tasks.get(producer_id) is task:
            del self._last_tasks[producer_id]

    async def verify(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[tuple[str, int]],
        *,
        add: bool,
        abortable: bool,
        host: str,
    ) -> Mapping[tuple[str, int], KafkaError | None]:
        """Verify partitions of a producer's transaction; return each one's error.

        Args:
            producer: producer id and epoch.
            abortable: the client knows TRANSACTION_ABORTABLE.
        """
        if self.verifier is None:
            codes: Mapping[tuple[str, int], ErrorCode] = {}
        else:
            codes = await self.verifier.verify(transactional_id, *producer, partitions, add=add, host=host)
        return {
            key: _error_of(codes.get(key, ErrorCode.COORDINATOR_NOT_AVAILABLE), add=add, abortable=abortable)
            for key in partitions
        }

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def _error_of(code: ErrorCode, *, add: bool, abortable: bool) -> KafkaError | None:
    """Map a coordinator's error for producers. NOT_ENOUGH_REPLICAS makes the client retry."""
    if code is ErrorCode.NONE:
        return None
    if code in _ASK_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not add):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"whether the transaction is ongoing cannot be found out now: {code.name}"
        )
    if code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code is ErrorCode.INVALID_TXN_STATE or (code is ErrorCode.TRANSACTION_ABORTABLE and not abortable):
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "the partition was not added to the transaction")
    return KafkaError(code)
