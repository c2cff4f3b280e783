"""Ends prepared transactions: writes their markers, then completes them in the log.

Here: which markers are being written, retries.
Not here: the writing (`MarkerWriter`), the decision (`transactions.shard`). After a start the current coordinator
completes prepared ends.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from busway_bus.coordinator.runtime import Runtime
from busway_bus.kernel.limits import ENDING_AT_ONCE_MAX, ENDING_ELSEWHERE_MAX, MARKER_RETRY_S
from busway_bus.kernel.transactions import MarkerWriter
from busway_bus.transactions.fencing import Identity
from busway_bus.transactions.shard import Levels, TransactionShard
from busway_bus.transactions.transaction import TopicPartition
from busway_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("busway.transactions")
_WRITTEN: Final = {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
"""Codes after which a partition needs no marker."""


class _Ending:
    """A transaction being ended.

    Attributes:
        identity: of the markers being written; None before it is read and after all are written.
        coordinator_epoch: of that reading; later the identity may be another transaction's.
        remaining: partitions without a marker.
    """

    __slots__ = (
        "attempts",
        "coordinator_epoch",
        "identity",
        "last_problem",
        "over",
        "partition",
        "remaining",
        "transactional_id",
    )

    def __init__(self, partition: int, transactional_id: str) -> None:
        self.partition = partition
        self.transactional_id = transactional_id
        self.identity: Identity | None = None
        self.coordinator_epoch = -1
        self.remaining: set[TopicPartition] = set()
        self.attempts = 0
        self.last_problem = ""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Markers:
    """The transactions being ended on this node.

    Args:
        coordinator_epoch: leader epoch of a partition of `__transaction_state`.
        exists: a partition's existence; deleted ones need no marker.
        levels: allowed by `transaction.version`.
    """

    def __init__(
        self,
        runtime: Runtime[TransactionShard],
        writer: MarkerWriter,
        *,
        coordinator_epoch: Callable[[int], int],
        exists: Callable[[str, int], bool],
        levels: Callable[[], Levels],
    ) -> None:
        self._runtime = runtime
        self._writer = writer
        self._coordinator_epoch = coordinator_epoch
        self._exists = exists
        self._levels = levels
        self._endings: dict[str, _Ending] = {}
        self._queue: dict[str, _Ending] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._elsewhere = 0
        """Running attempts that wait for other brokers only: a hanging one must not hold up the others."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._closed = False

    def begin(self, partition: int, transactional_id: str) -> None:
        if self._closed or transactional_id in self._endings:
            return
        ending = self._endings[transactional_id] = _Ending(partition, transactional_id)
        self._enqueue(ending)

    def resume(self, partition: int, shard: TransactionShard) -> None:
        for transactional_id in shard.prepared:
            self.begin(partition, transactional_id)

    def remaining(self, transactional_id: str, identity: Identity) -> frozenset[TopicPartition] | None:
        """Return the partitions without a marker; None if unknown."""
        ending = self._endings.get(transactional_id)
        return None if ending is None or ending.identity != identity else frozenset(ending.remaining)

    async def over(self, transactional_id: str, *, within_s: float) -> bool:
        ending = self._endings.get(transactional_id)
        if ending is None:
            return True
        await asyncio.wait([ending.over], timeout=within_s)
        return ending.over.done()

    async def close(self) -> None:
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._queue.clear()
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        for ending in self._endings.values():
            ending.over.cancel()
        self._endings.clear()

    def _enqueue(self, ending: _Ending) -> None:
        self._timers.pop(ending.transactional_id, None)
        self._queue[ending.transactional_id] = ending
        self._start_more()

    def _start_more(self) -> None:
        while self._queue and self._has_slot() and not self._closed:
            ending = self._queue.pop(next(iter(self._queue)))
            task = asyncio.ensure_future(self._attempt(ending))
            self._running.add(task)
            task.add_done_callback(self._attempt_ended)

    def _has_slot(self) -> bool:
        return len(self._running) - self._elsewhere < ENDING_AT_ONCE_MAX and self._elsewhere < ENDING_ELSEWHERE_MAX

    def _waits_elsewhere(self, waits: bool) -> None:
        self._elsewhere += 1 if waits else -1
        if waits:
            self._start_more()

    def _attempt_ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._start_more()

    async def _attempt(self, ending: _Ending) -> None:
        try:
            problem = await self._end(ending)
        except KafkaError as refused:
            problem = refused.message or refused.code.name
        except Exception:
            logger.exception("transaction %s is ended later on a mistake of this broker", ending.transactional_id)
            problem = "a mistake of this broker"
        shard = self._runtime.shards().get(ending.partition)
        if shard is None or ending.transactional_id not in shard.prepared:
            # Done, or left to the current coordinator: a loaded shard lists what is prepared.
            del self._endings[ending.transactional_id]
            if not ending.over.done():
                ending.over.set_result(None)
            return
        if not problem:  # the next transaction of this id was prepared meanwhile
            ending.attempts, ending.last_problem = 0, ""
            self._enqueue(ending)
            return
        if problem != ending.last_problem:
            ending.last_problem = problem
            logger.warning(
                "transaction %s cannot be ended yet, and is tried again: %s", ending.transactional_id, problem
            )
        first_s, longest_s = MARKER_RETRY_S
        delay_s = min(first_s * 2 ** min(ending.attempts, 10), longest_s)
        ending.attempts += 1
        timer = asyncio.get_running_loop().call_later(delay_s, self._enqueue, ending)
        self._timers[ending.transactional_id] = timer

    async def _end(self, ending: _Ending) -> str:
        """Try to end a transaction; return the obstacle, empty on success.

        KafkaError: `__transaction_state` cannot be read or written.
        """
        state_partition, transactional_id = ending.partition, ending.transactional_id
        # Only a durable decision is carried out: a crash must not revoke it after a marker is written.
        transaction = await self._runtime.read(state_partition, lambda shard: shard.transactions.get(transactional_id))
        if transaction is None or not transaction.state.prepared:
            return ""
        identity = (transaction.producer_id, transaction.epoch)
        epoch = self._coordinator_epoch(state_partition)
        if (ending.identity, ending.coordinator_epoch) != (identity, epoch):
            ending.identity, ending.coordinator_epoch = identity, epoch
            ending.remaining = set(transaction.partitions)
        ending.remaining = {topic_partition for topic_partition in ending.remaining if self._exists(*topic_partition)}
        if ending.remaining:
            codes = await self._writer.write(
                transaction.marker(epoch), tuple(sorted(ending.remaining)), elsewhere=self._waits_elsewhere
            )
            if self._coordinator_epoch(state_partition) != epoch:
                return "another broker may have ended it meanwhile"
            ending.remaining -= {topic_partition for topic_partition, code in codes.items() if code in _WRITTEN}
            if ending.remaining:
                (topic, partition), refused = min(ending.remaining), codes
                code = refused.get((topic, partition), ErrorCode.UNKNOWN_SERVER_ERROR)
                return f"{topic}-{partition} has no marker: {code.name}"
        self._runtime.decide(
            state_partition,
            lambda shard: shard.complete(transactional_id, identity, self._levels(), self._runtime.now()),
        )
        # The next transaction may be prepared meanwhile, for older clients with the same identity. It needs new markers.
        ending.identity = None
        await self._runtime.read(state_partition, lambda shard: None)
        return ""
