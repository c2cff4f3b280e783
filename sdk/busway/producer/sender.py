"""The loop that sends what the accumulator has ready.

What lives here: grouping batches by leader, the Produce request, what each error means for a batch. What does not: the records'
way into batches. An idempotent producer that loses track of a sequence takes a new epoch before it goes on (KIP-360).
"""

import asyncio
import contextlib
from typing import Final

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

NAMES_UNTIL: Final = 12
"""From Produce 13 on topics go by id; names are used, so that a re-created topic is found again."""
_RETRY_S: Final = 0.1
_LOST_TRACK: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
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
        self._producer_id, self._epoch = -1, -1
        self._lost_track = False
        self._stale = False

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    async def space(self) -> None:
        """Return after the next batch is done."""
        self._space.clear()
        await self._space.wait()

    async def identify(self) -> None:
        """Take a producer id, or the next epoch of the one that there is.

        Raises:
            BrokerError, ConnectionFailed, RequestTimedOut.
        """
        backoff = self._cluster.backoff()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.request_timeout_ms / 1000
        while True:
            problem: BuswayError
            request = InitProducerIdRequest(
                transactional_id=None,
                transaction_timeout_ms=60_000,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
            )
            try:
                connection = await self._cluster.any_connection()
                if connection.version(request.message_info.api_key) < 3:  # type: ignore[attr-defined]
                    request.producer_id, request.producer_epoch = -1, -1
                answer: InitProducerIdResponse = await connection.request(request)
                code = error_for(answer.error_code)
                if code is ErrorCode.NONE:
                    self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
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
            with contextlib.suppress(BuswayError):
                await self._cluster.refresh_if_old()
            wait: float | None = None
            if self._lost_track:
                await self._regain()
            else:
                wait = await self._send_ready(loop.time())
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _send_ready(self, now: float) -> float | None:
        """Send what is ready; answers how long the loop may sleep."""
        partitions, soonest = self._accumulator.ready(now)
        wait = None if soonest is None else max(0.0, soonest - now)
        if self._stale or any(self._cluster.metadata.leader(*partition) is None for partition in partitions):
            try:
                await self._cluster.refresh()
                self._stale = False
            except BuswayError:
                return _RETRY_S
        by_leader: dict[int, list[Partition]] = {}
        for partition in partitions:
            leader = self._cluster.metadata.leader(*partition)
            if leader is None:
                wait = _RETRY_S
            elif self._in_flight.get(leader, 0) < self._options.max_in_flight:
                by_leader.setdefault(leader, []).append(partition)
        for leader, chosen in by_leader.items():
            batches = self._fit(chosen)
            self._in_flight[leader] = self._in_flight.get(leader, 0) + 1
            task = asyncio.get_running_loop().create_task(self._request(leader, batches))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
            if len(batches) < len(chosen):
                wait = 0.0
        return wait

    def _fit(self, partitions: list[Partition]) -> list[Batch]:
        """Batches for one request, within max_request_size but at least one."""
        taken: list[Batch] = []
        size = 0
        for partition in partitions:
            if taken and size >= self._options.max_request_size - self._options.batch_size:
                break
            batch = self._accumulator.take(partition, self._producer_id, self._epoch)
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
            for batch in batches:
                batch.sent = True
            answer: ProduceResponse | None = await connection.request(
                request, at_most=NAMES_UNTIL, answer=self._acks != 0
            )
        except (ConnectionFailed, RequestTimedOut) as problem:
            self._stale = True
            for batch in batches:
                if self._acks == 0:
                    self._fail(batch, problem)
                else:
                    self._accumulator.retry(batch, loop.time() + _RETRY_S)
        except BuswayError as problem:
            for batch in batches:
                self._fail(batch, problem)
        except Exception as problem:
            for batch in batches:
                self._fail(batch, DeliveryFailed(f"{_name(batch)}: the request could not be made: {problem!r}"))
            raise
        else:
            self._answered(batches, answer, loop.time())
        finally:
            self._in_flight[leader] -= 1
            self._space.set()
            self._wake.set()

    def _answered(self, batches: list[Batch], answer: ProduceResponse | None, now: float) -> None:
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
                self._judge(batch, partition, now)

    def _judge(self, batch: Batch, partition: PartitionProduceResponse, now: float) -> None:
        code = error_for(partition.error_code)
        if code is ErrorCode.NONE:
            self._succeed(batch, partition.base_offset, partition.log_append_time_ms)
        elif code in _LOST_TRACK and self._options.enable_idempotence:
            self._lost_track = True
            self._fail(batch, BrokerError(code, _name(batch), partition.error_message))
        elif code.retriable:
            self._stale |= code in _STALE_LEADER
            self._accumulator.retry(batch, now + _RETRY_S)
        else:
            # The broker never saw its sequence numbers, so those that follow are ahead of what it waits for.
            self._lost_track |= self._options.enable_idempotence
            self._fail(batch, BrokerError(code, _name(batch), partition.error_message))

    async def _regain(self) -> None:
        """Nothing under way, then a new epoch: sequences start over."""
        if self._accumulator.in_flight:
            return
        try:
            await self.identify()
        except BuswayError as problem:
            for batch in self._accumulator.all_batches():
                self._fail(batch, problem)
            return
        self._accumulator.reset_sequences()
        self._lost_track = False
        self._wake.set()

    def _expire(self, now: float) -> None:
        timeout_ms = self._options.delivery_timeout_ms
        for batch in self._accumulator.expired(now, timeout_ms / 1000):
            if batch.sent and self._options.enable_idempotence:
                self._lost_track = True
            self._fail(batch, DeliveryFailed(f"{_name(batch)}: not acknowledged within {timeout_ms} ms"))

    def _succeed(self, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        self._accumulator.done(batch)
        topic, number = batch.partition
        for position, timestamp_ms, waiter in batch.waiters:
            if not waiter.done():
                offset = base_offset + position if base_offset >= 0 else -1
                stamp = timestamp_ms if append_time_ms < 0 else append_time_ms
                waiter.set_result(RecordMetadata(topic, number, offset, stamp))

    def _fail(self, batch: Batch, problem: BuswayError) -> None:
        self._accumulator.done(batch)
        for _, _, waiter in batch.waiters:
            if not waiter.done():
                waiter.set_exception(problem)
                waiter.exception()  # reading it once keeps asyncio from complaining about records nobody awaits
        self._space.set()

    async def stop(self) -> None:
        """End the requests that are under way and fail what is left."""
        for task in tuple(self._requests):
            task.cancel()
        if self._requests:
            await asyncio.wait(self._requests)
        for batch in self._accumulator.all_batches():
            self._fail(batch, DeliveryFailed(f"{_name(batch)}: the producer was stopped before it was sent"))


def _name(batch: Batch) -> str:
    topic, number = batch.partition
    return f"{topic}-{number}"
