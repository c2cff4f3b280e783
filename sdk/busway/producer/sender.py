"""The loop that sends what the accumulator has ready.

What lives here: grouping batches by leader, the Produce request, what each error means for a batch. What does not: the records'
way into batches, sequence numbers (`accumulator`).

A batch fails alone, and only when it may be lost or written twice otherwise: what the broker has certainly not written is sent again
under the partition's next epoch when the two disagree about sequence numbers (KIP-360).
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from busway.cluster.client import ClusterClient
from busway.errors import BrokerError, BuswayError, ConnectionFailed, DeliveryFailed, RequestTimedOut
from busway.options import ACKS, ProducerOptions
from busway.producer.accumulator import Accumulator, Batch, Partition
from busway.types import RecordMetadata
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from busway_protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

log = logging.getLogger("busway.producer")

NAMES_UNTIL: Final = 12
"""From Produce 13 on topics go by id; names are used, so that a re-created topic is found again."""
_RETRY_S: Final = 0.1
_LOST_TRACK: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""The broker's last sequence number is not what was acknowledged: this batch was not written, and earlier ones may be lost there."""
_WRITTEN: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""After the second, the broker knows no more where it put the batch."""
_TOO_LARGE: Final = {
    ErrorCode.MESSAGE_TOO_LARGE: "max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "segment.bytes",
}
"""The batch is larger than this setting of its topic; parts of it may not be."""
_STALE_LEADER: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Sender:
    """Drains an accumulator until it is told to stop."""

    def __init__(self, cluster: ClusterClient, accumulator: Accumulator, options: ProducerOptions) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._options = options
        self._acks = ACKS[options.acks]
        self._wake = asyncio.Event()
        self._space = asyncio.Event()
        self._requests: set[asyncio.Task[None]] = set()
        self._in_flight: dict[int, int] = {}
        self._producer_id = -1
        self._expiry_at = 0.0
        self._stale = False
        self._errands: dict[str, float] = {}

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    async def space(self) -> None:
        """Return after the next batch is done."""
        self._space.clear()
        await self._space.wait()

    async def identify(self) -> None:
        """Take a producer id, another one than before.

        Raises:
            BrokerError, ConnectionFailed, RequestTimedOut.
        """
        backoff = self._cluster.backoff()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.request_timeout_ms / 1000
        while True:
            problem: BuswayError
            try:
                answer: InitProducerIdResponse = await self._cluster.ask_any(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                )
                code = error_for(answer.error_code)
                if code is ErrorCode.NONE:
                    self._producer_id = answer.producer_id
                    return
                problem = BrokerError(code, "taking a producer id")
                if not code.retriable:
                    raise problem
            except (ConnectionFailed, RequestTimedOut) as failed:
                problem = failed
            if loop.time() >= deadline:
                raise problem
            await asyncio.sleep(backoff.next())

    async def run(self) -> None:
        """Send until cancelled.

        Raises:
            Exception: a mistake of ours; whoever waits for a record is told first.
        """
        try:
            await self._run()
        except Exception as problem:
            for batch in self._accumulator.all_batches():
                self._fail(batch, DeliveryFailed(f"{_name(batch)}: the producer has failed: {problem!r}"))
            raise

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            self._expire(loop.time())
            wait = self._send_ready(loop.time())
            until_expiry = max(0.0, self._expiry_at - loop.time())
            try:
                async with asyncio.timeout(until_expiry if wait is None else min(wait, until_expiry)):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _send_ready(self, now: float) -> float | None:
        """Send what is ready; answers how long the loop may sleep.

        Nothing is waited for here: a leader that does not answer, or that is not known, holds its own partitions alone.
        """
        partitions, soonest = self._accumulator.ready(now)
        wait = None if soonest is None else max(0.0, soonest - now)
        by_leader: dict[int, list[Partition]] = {}
        homeless = nameless = False
        for partition in partitions:
            leader = self._cluster.metadata.leader(*partition)
            if leader is None:
                homeless = True
            elif self._accumulator.lacks_identity(partition, self._producer_id):
                nameless = True
            elif self._in_flight.get(leader, 0) < self._options.max_in_flight:
                by_leader.setdefault(leader, []).append(partition)
        if homeless or self._stale or self._cluster.is_old:
            self._begin("metadata", self._refresh, now)
        if nameless:
            self._begin("producer id", self.identify, now)
        if homeless or nameless or self._stale:
            wait = _RETRY_S if wait is None else min(wait, _RETRY_S)
        for leader, chosen in by_leader.items():
            batches = self._fit(chosen)
            self._in_flight[leader] = self._in_flight.get(leader, 0) + 1
            self._spawn(self._request(leader, batches))
            if len(batches) < len(chosen):
                wait = 0.0
        return wait

    def _begin(self, what: str, errand: Callable[[], Awaitable[None]], now: float) -> None:
        """Look something up in the background, unless that is under way or was tried just now."""
        if now >= self._errands.get(what, 0.0):
            self._errands[what] = math.inf
            self._spawn(self._run_errand(what, errand))

    async def _run_errand(self, what: str, errand: Callable[[], Awaitable[None]]) -> None:
        try:
            await errand()
        except BuswayError as problem:
            log.debug("%s: %s", what, problem)
        finally:
            self._errands[what] = asyncio.get_running_loop().time() + _RETRY_S
            self._wake.set()

    async def _refresh(self) -> None:
        self._stale = False
        try:
            await self._cluster.refresh()
        except BuswayError:
            self._stale = True
            raise

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    def _fit(self, partitions: list[Partition]) -> list[Batch]:
        """Batches for one request, within max_request_size but at least one."""
        taken: list[Batch] = []
        size = 0
        for partition in partitions:
            if taken and size >= self._options.max_request_size - self._options.batch_size:
                break
            batch = self._accumulator.take(partition, self._producer_id)
            size += len(batch.encoded or b"")
            taken.append(batch)
        return taken

    async def _request(self, leader: int, batches: list[Batch]) -> None:
        loop = asyncio.get_running_loop()
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name, number = batch.partition
            topic = topics.setdefault(name, TopicProduceData(name=name, partition_data=[]))
            topic.partition_data.append(PartitionProduceData(index=number, records=batch.encoded))
        request = ProduceRequest(
            acks=self._acks, timeout_ms=self._options.request_timeout_ms, topic_data=list(topics.values())
        )
        try:
            connection = await self._cluster.connection(leader)
            certain = {batch for batch in batches if not batch.uncertain}
            for batch in certain:
                batch.uncertain = True
            answer: ProduceResponse | None = await connection.request(
                request, at_most=NAMES_UNTIL, answer=self._acks != 0
            )
        except (ConnectionFailed, RequestTimedOut) as problem:
            self._stale = True
            for batch in batches:
                if self._acks == 0:
                    self._fail(batch, problem)
                else:
                    self._again(batch, loop.time(), problem)
        except BuswayError as problem:
            for batch in batches:
                self._fail(batch, problem)
        except Exception as problem:
            for batch in batches:
                self._fail(batch, DeliveryFailed(f"{_name(batch)}: the request could not be made: {problem!r}"))
            raise
        else:
            self._answered(batches, certain, answer, loop.time())
        finally:
            self._in_flight[leader] -= 1
            self._space.set()
            self._wake.set()

    def _answered(self, batches: list[Batch], certain: set[Batch], answer: ProduceResponse | None, now: float) -> None:
        if answer is None:
            for batch in batches:
                self._succeed(batch, -1, -1)
            return
        found = {
            (topic.name, partition.index): partition
            for topic in answer.responses
            for partition in topic.partition_responses
        }
        for batch in batches:
            partition = found.get(batch.partition)
            if partition is None:
                self._fail(batch, DeliveryFailed(f"{_name(batch)}: the broker did not answer for this partition"))
            else:
                self._judge(batch, batch not in certain, partition, now)

    def _judge(self, batch: Batch, was_uncertain: bool, partition: PartitionProduceResponse, now: float) -> None:
        """Settle a batch, or have it sent again.

        Args:
            was_uncertain: whether it may have been written by an earlier request.
        """
        code = error_for(partition.error_code)
        problem = BrokerError(code, _name(batch), partition.error_message)
        if code in _WRITTEN:
            self._succeed(batch, partition.base_offset, partition.log_append_time_ms)
        elif code in _TOO_LARGE:
            batch.uncertain = was_uncertain
            self._too_large(batch, code)
        elif code in _LOST_TRACK and self._options.enable_idempotence and not (was_uncertain and batch.halved):
            # Had the broker this batch, it would know it again: it keeps the last five of a producer, and we have one under way.
            self._again(batch, now, problem, renewed=True)
        elif code is ErrorCode.INVALID_PRODUCER_EPOCH and self._options.enable_idempotence and not was_uncertain:
            self._again(batch, now, problem, renewed=True, identity=True)
        elif code.retriable:
            self._stale |= code in _STALE_LEADER
            self._again(batch, now, problem)
        else:
            if code is not ErrorCode.UNKNOWN_SERVER_ERROR:
                batch.uncertain = was_uncertain  # this refusal is certain
            self._fail(batch, problem)

    def _too_large(self, batch: Batch, code: ErrorCode) -> None:
        setting = _TOO_LARGE[code]
        if batch.builder.count > 1 and not batch.given_up:
            self._accumulator.split(batch)
            return
        size = batch.builder.size_bytes
        text = f"a batch of one record, {size} bytes, is larger than the topic's {setting}; raise that, or send less in a record"
        self._fail(batch, BrokerError(code, _name(batch), text))

    def _again(
        self, batch: Batch, now: float, problem: BuswayError, *, renewed: bool = False, identity: bool = False
    ) -> None:
        """Send the batch again soon, under the partition's next epoch or another producer id if need be."""
        batch.problem = problem
        if renewed:
            self._accumulator.retry_renewed(batch, now + _RETRY_S, identity=identity)
        else:
            self._accumulator.retry(batch, now + _RETRY_S)
        if batch.given_up:
            self._fail(batch, problem)

    def _expire(self, now: float) -> None:
        if now < self._expiry_at:
            return
        timeout_ms = self._options.delivery_timeout_ms
        expired, self._expiry_at = self._accumulator.expired(now, timeout_ms / 1000)
        for batch in expired:
            problem = DeliveryFailed(_not_in_time(batch, timeout_ms))
            if batch.given_up:
                self._tell(batch, problem)
            else:
                self._fail(batch, problem)

    def _succeed(self, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        self._accumulator.acknowledged(batch)
        topic, number = batch.partition
        for position, timestamp_ms, waiter in batch.waiters:
            if not waiter.done():
                offset = base_offset + position if base_offset >= 0 else -1
                stamp = timestamp_ms if append_time_ms < 0 else append_time_ms
                waiter.set_result(RecordMetadata(topic, number, offset, stamp))

    def _fail(self, batch: Batch, problem: BuswayError) -> None:
        self._accumulator.failed(batch)
        self._tell(batch, problem)
        self._space.set()

    def _tell(self, batch: Batch, problem: BuswayError) -> None:
        for _, _, waiter in batch.waiters:
            if not waiter.done():
                waiter.set_exception(problem)
                waiter.exception()  # reading it once keeps asyncio from complaining about records nobody awaits

    def left(self) -> dict[Partition, int]:
        """How many records of each partition wait for their acknowledgement."""
        found: dict[Partition, int] = {}
        for batch in self._accumulator.all_batches():
            if not batch.given_up:
                found[batch.partition] = found.get(batch.partition, 0) + batch.builder.count
        return found

    async def stop(self) -> None:
        """End the requests that are under way and fail what is left."""
        for task in tuple(self._requests):
            task.cancel()
        if self._requests:
            await asyncio.wait(self._requests)
        for batch in self._accumulator.all_batches():
            self._fail(batch, DeliveryFailed(f"{_name(batch)}: the producer was stopped before it was acknowledged"))


def _not_in_time(batch: Batch, timeout_ms: int) -> str:
    written = "whether it was written is not known" if batch.uncertain else "it was not written"
    last = f"; the last attempt: {batch.problem}" if batch.problem is not None else ""
    return f"{_name(batch)}: not acknowledged within {timeout_ms} ms, {written}{last}"


def _name(batch: Batch) -> str:
    topic, number = batch.partition
    return f"{topic}-{number}"
