"""The loop that sends ready batches.

Not here: filling batches, sequence numbers (`accumulator`).

A batch fails only if it would otherwise be lost or written twice: if sequence numbers disagree, a batch that was
certainly not written is sent again under the partition's next epoch (KIP-360).
"""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from busway.cluster.client import ClusterClient
from busway.cluster.rate_limited_log import RateLimitedLog
from busway.errors import BrokerError, BuswayError, ConnectionFailed, DeliveryFailed, RequestTimedOut
from busway.net.clock import REAL_TIME
from busway.net.retry import RetryTimer
from busway.options import ACKS, ProducerOptions
from busway.producer.accumulator import Accumulator, Batch, Partition
from busway.producer.produce_errors import LOST_TRACK, STALE_LEADER, TOO_LARGE, WRITTEN, name_of, not_in_time, stopped
from busway.producer.single_flight import RETRY_S, SingleFlight
from busway.producer.transaction_requests import FENCED, PRODUCE_BEFORE, SOON_S, TransactionRequests
from busway.producer.transactions import Transactions
from busway.types import RecordMetadata
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.produce import (
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from busway_protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

logger: logging.Logger = logging.getLogger("busway.producer")

NAMES_UNTIL: Final = 12
"""Last Produce version with topic names, which also find a recreated topic."""


class Sender:
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
        self._unreachable: set[int] = set()
        """Brokers that did not respond, left alone until the metadata was refreshed: their partitions may have moved."""
        self._rate_limited_log = RateLimitedLog(logger)
        self._single_flight = SingleFlight(self._spawn, self.wake, self._rate_limited_log)
        self.transactions: Transactions | None = None
        if options.transactional_id is not None:
            self.transactions = Transactions(TransactionRequests(cluster, options), self)

    def wake(self) -> None:
        self._wake.set()

    async def space(self) -> None:
        self._space.clear()
        await self._space.wait()

    async def identify(self) -> None:
        """Get a new producer id, or take the transactional id over; raise when refused or after the request timeout."""
        if self.transactions is not None:
            await self.transactions.identify()
            return
        timer = RetryTimer(self._cluster.backoff(), self._options.request_timeout_ms / 1000)
        while True:
            problem: BuswayError
            try:
                answer: InitProducerIdResponse = await self._cluster.ask_any(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                )
                code = error_for(answer.error_code)
                if code is ErrorCode.NONE:
                    logger.info("sends as producer %d", answer.producer_id)
                    self._producer_id = answer.producer_id
                    return
                problem = BrokerError(code, "taking a producer id")
                if not code.retriable:
                    raise problem
            except (ConnectionFailed, RequestTimedOut) as failed:
                problem = failed
            await timer.sleep_or_raise(problem)

    async def run(self) -> None:
        """Send until cancelled; all waiters fail at the end. Raise an internal error.

        `asyncio.run` cancels this task together with those that wait for records.
        """
        try:
            await self._run()
        except asyncio.CancelledError:
            for batch in self._accumulator.all_batches():
                self._fail_waiters(batch, stopped(batch))
            raise
        except Exception as problem:
            for batch in self._accumulator.all_batches():
                self._fail(batch, DeliveryFailed(f"{name_of(batch)}: the producer has failed: {problem!r}"))
            raise

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            self._expire(REAL_TIME.now_s())
            wait = self._send_ready(REAL_TIME.now_s())
            until_expiry = max(0.0, self._expiry_at - REAL_TIME.now_s())
            try:
                async with REAL_TIME.timeout(until_expiry if wait is None else min(wait, until_expiry)):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _send_ready(self, now: float) -> float | None:
        """Send what is ready, without waiting; return the seconds until the next call.

        A leader that is unknown or does not respond delays only its partitions.
        """
        partitions, soonest = self._accumulator.ready(now)
        wait = None if soonest is None else max(0.0, soonest - now)
        by_leader: dict[int, list[Partition]] = {}
        homeless = nameless = False
        outside: list[Partition] = []
        for partition in partitions:
            leader = self._cluster.metadata.leader(*partition)
            if leader is None:
                homeless = True
            elif self.transactions is not None and self.transactions.lacks(partition):
                outside.append(partition)
            elif self._accumulator.lacks_identity(partition, self._producer_id):
                nameless = True
            elif self._in_flight.get(leader, 0) < self._options.max_in_flight and leader not in self._unreachable:
                by_leader.setdefault(leader, []).append(partition)
        if homeless or self._stale or self._cluster.is_old:
            self._single_flight.begin("metadata", self._refresh, now)
        if nameless:
            self._single_flight.begin("producer id", self.identify, now)
        if outside and self.transactions is not None:
            self._single_flight.begin("adding partitions", partial(self.transactions.add, outside), now, rest_s=0.0)
        if homeless or nameless or self._stale:
            wait = RETRY_S if wait is None else min(wait, RETRY_S)
        for leader, chosen in by_leader.items():
            batches = self._fit(chosen)
            self._in_flight[leader] = self._in_flight.get(leader, 0) + 1
            self._spawn(self._request(leader, batches))
            if len(batches) < len(chosen):
                wait = 0.0
        return wait

    async def _refresh(self) -> None:
        self._stale = False
        try:
            await self._cluster.refresh()
        except BuswayError:
            self._stale = True
            raise
        finally:
            self._unreachable.clear()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    def _fit(self, partitions: list[Partition]) -> list[Batch]:
        """Take batches for one request: at least one, about max_request_size."""
        taken: list[Batch] = []
        size = 0
        for partition in partitions:
            if taken and size >= self._options.max_request_size - self._options.batch_size:
                break
            if self.transactions is not None:
                self.transactions.sent(partition)
                batch = self._accumulator.take(partition, *self.transactions.identity)
            else:
                batch = self._accumulator.take(partition, self._producer_id)
            size += len(batch.encoded or b"")
            taken.append(batch)
        return taken

    async def _request(self, leader: int, batches: list[Batch]) -> None:
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name, partition_index = batch.partition
            topic = topics.setdefault(name, TopicProduceData(name=name, partition_data=[]))
            topic.partition_data.append(PartitionProduceData(index=partition_index, records=batch.encoded))
        request = ProduceRequest(
            transactional_id=self._options.transactional_id,
            acks=self._acks,
            timeout_ms=self._options.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        explicit = self.transactions is not None and not self.transactions.implicit
        try:
            connection = await self._cluster.connection(leader)
            certain = {batch for batch in batches if not batch.uncertain}
            for batch in certain:
                batch.uncertain = True
            answer: ProduceResponse | None = await connection.request(
                request, at_most=PRODUCE_BEFORE if explicit else NAMES_UNTIL, answer=self._acks != 0
            )
        except (ConnectionFailed, RequestTimedOut) as problem:
            self._stale = True
            self._unreachable.add(leader)
            for batch in batches:
                if self._acks == 0:
                    self._fail(batch, problem)
                else:
                    self._retry(batch, REAL_TIME.now_s(), problem)
        except BuswayError as problem:
            for batch in batches:
                self._fail(batch, problem)
        except Exception as problem:
            for batch in batches:
                self._fail(batch, DeliveryFailed(f"{name_of(batch)}: the request could not be made: {problem!r}"))
            raise
        else:
            self._answered(batches, certain, answer, REAL_TIME.now_s())
        finally:
            self._in_flight[leader] -= 1
            self._space.set()
            self._wake.set()

    def _answered(self, batches: list[Batch], certain: set[Batch], answer: ProduceResponse | None, now: float) -> None:
        if answer is None:
            for batch in batches:
                self._succeed(batch, -1, -1)
            return
        responses = {
            (topic.name, partition.index): partition
            for topic in answer.responses
            for partition in topic.partition_responses
        }
        for batch in batches:
            partition = responses.get(batch.partition)
            if partition is None:
                self._fail(batch, DeliveryFailed(f"{name_of(batch)}: the broker did not answer for this partition"))
            else:
                self._judge(batch, batch not in certain, partition, now, answer.node_endpoints)

    def _judge(
        self,
        batch: Batch,
        was_uncertain: bool,
        partition: PartitionProduceResponse,
        now: float,
        endpoints: list[NodeEndpoint],
    ) -> None:
        """Settle a batch or retry it; `was_uncertain` if an earlier request may have written it."""
        code = error_for(partition.error_code)
        problem = BrokerError(code, name_of(batch), partition.error_message)
        if code in WRITTEN:
            self._succeed(batch, partition.base_offset, partition.log_append_time_ms)
        elif code in TOO_LARGE:
            batch.uncertain = was_uncertain
            self._too_large(batch, code)
        elif self.transactions is not None and not code.retriable:
            self._fail_in_transaction(batch, code, was_uncertain=was_uncertain, text=partition.error_message)
        elif code in LOST_TRACK and self._options.enable_idempotence and not (was_uncertain and batch.halved):
            # Not written: the broker detects duplicates of a producer's last five batches, and one is in flight.
            self._retry(batch, now, problem, renewed=True)
        elif code is ErrorCode.INVALID_PRODUCER_EPOCH and self._options.enable_idempotence and not was_uncertain:
            self._retry(batch, now, problem, renewed=True, identity=True)
        elif code.retriable:
            self._stale |= code in STALE_LEADER
            moved = self._cluster.metadata.move_leader(*batch.partition, partition.current_leader, endpoints)
            self._retry(batch, now, problem, at_once=moved)
        else:
            if code is not ErrorCode.UNKNOWN_SERVER_ERROR:
                batch.uncertain = was_uncertain  # the error excludes a write
            self._fail(batch, problem)

    def _fail_in_transaction(self, batch: Batch, code: ErrorCode, *, was_uncertain: bool, text: str | None) -> None:
        """Fail a batch without a new epoch: the broker has earlier batches of this one."""
        assert self.transactions is not None
        if code is not ErrorCode.UNKNOWN_SERVER_ERROR:
            batch.uncertain = was_uncertain or code in LOST_TRACK
        if code in FENCED:
            text = self.transactions.fenced_text()
        self._fail(batch, BrokerError(code, name_of(batch), text), code)

    def _too_large(self, batch: Batch, code: ErrorCode) -> None:
        setting = TOO_LARGE[code]
        if batch.builder.count > 1 and not batch.given_up:
            text = "%s: a batch of %d bytes is larger than the topic's %s; it is sent in halves"
            self._rate_limited_log.log(
                logging.INFO, (batch.partition, code), text, name_of(batch), batch.builder.size_bytes, setting
            )
            self._accumulator.split(batch)
            return
        size = batch.builder.size_bytes
        text = f"a batch of one record, {size} bytes, is larger than the topic's {setting}; raise that, or send less in a record"
        self._fail(batch, BrokerError(code, name_of(batch), text))

    def _retry(
        self,
        batch: Batch,
        now: float,
        problem: BuswayError,
        *,
        renewed: bool = False,
        identity: bool = False,
        at_once: bool = False,
    ) -> None:
        batch.problem = problem
        if isinstance(problem, BrokerError):
            serious = (
                renewed or problem.code is ErrorCode.KAFKA_STORAGE_ERROR
            )  # for instance a full disk, which may last
            level = logging.WARNING if serious else logging.INFO
            how = "under another producer id" if identity else "under the next epoch" if renewed else "again"
            self._rate_limited_log.log(level, (batch.partition, problem.code), "refused, and sent %s: %s", how, problem)
        soon = isinstance(problem, BrokerError) and problem.code is ErrorCode.CONCURRENT_TRANSACTIONS
        if renewed:
            self._accumulator.retry_renewed(batch, now + RETRY_S, identity=identity)
        else:
            self._accumulator.retry(batch, now + (0.0 if at_once else SOON_S if soon else RETRY_S))
        if batch.given_up:
            self._fail(batch, problem)

    def _expire(self, now: float) -> None:
        if now < self._expiry_at:
            return
        timeout_ms = self._options.delivery_timeout_ms
        expired, self._expiry_at = self._accumulator.expired(now, timeout_ms / 1000)
        for batch in expired:
            problem = DeliveryFailed(not_in_time(batch, timeout_ms))
            self._rate_limited_log.log(
                logging.WARNING, (batch.partition, "late"), "%d records failed: %s", batch.builder.count, problem
            )
            if batch.given_up:
                self._fail_waiters(batch, problem)
                if self.transactions is not None:
                    self.transactions.batch_failed(None, problem, lost_track=False)  # known with the response
            else:
                self._fail(batch, problem)

    def _succeed(self, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        self._accumulator.acknowledged(batch)
        topic, partition_index = batch.partition
        for position, timestamp_ms, waiter in batch.waiters:
            if not waiter.done():
                offset = base_offset + position if base_offset >= 0 else -1
                stamp = timestamp_ms if append_time_ms < 0 else append_time_ms
                waiter.set_result(RecordMetadata(topic, partition_index, offset, stamp))

    def _fail(self, batch: Batch, problem: BuswayError, code: ErrorCode | None = None) -> None:
        if batch.settled:  # failed with its transaction
            return
        ends = self._accumulator.failed(batch)
        if ends and self.transactions is None:
            logger.info("%s: continues in another epoch, behind a batch that may have been written", name_of(batch))
        self._fail_waiters(batch, problem)
        if self.transactions is not None:
            self.transactions.batch_failed(code, problem, lost_track=ends)
        self._space.set()

    def _fail_waiters(self, batch: Batch, problem: BuswayError) -> None:
        for _, _, waiter in batch.waiters:
            if not waiter.done():
                waiter.set_exception(problem)
                waiter.exception()  # mark as retrieved: asyncio warns about futures that are not awaited

    async def flush(self) -> None:
        self._accumulator.flushing += 1
        self.wake()
        try:
            await self.settled()
        finally:
            self._accumulator.flushing -= 1

    async def settled(self) -> None:
        while self._accumulator.buffered:
            await self.space()

    def abandon(self, problem: BuswayError) -> None:
        """Fail every unacknowledged record; batches in flight are settled by their response."""
        for batch in self._accumulator.all_batches():
            if self._accumulator.is_under_way(batch):
                batch.given_up = True
                self._fail_waiters(batch, problem)
            else:
                self._fail(batch, problem)

    def left(self) -> dict[Partition, int]:
        counts: dict[Partition, int] = {}
        for batch in self._accumulator.all_batches():
            if not batch.given_up:
                counts[batch.partition] = counts.get(batch.partition, 0) + batch.builder.count
        return counts

    async def stop(self) -> None:
        for task in tuple(self._requests):
            task.cancel()
        if self._requests:
            await asyncio.wait(self._requests)
        for batch in self._accumulator.all_batches():
            self._fail(batch, stopped(batch))
