"""What the tests of transactions ask, and how answers are made comparable.

Here: a run that knows producers by names, requests in few words, and waiting for a transaction to end.
Not here: what is asked (`transactions_scenarios`).
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Final

from tests.integration.broker.groups_probe import DEADLINE_S, Run

from busway.net.machine import current_machine
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from busway_protocol.messages.groups_classic import FindCoordinatorRequest
from busway_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from busway_protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)
from busway_protocol.records.batch import iter_batches
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records

Identity = tuple[int, int]
Place = tuple[str, int]
TOPICS: Final = ("one", "two")
READ: Final = ("one", 0)
SETTLED: Final = {"Empty", "CompleteCommit", "CompleteAbort", ""}
NEVER: Final = -1


class TransactionsRun(Run):
    """A run against one broker; producer ids are compared by the order in which they were given out."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._producers: dict[int, str] = {}

    async def prepare(self, group_id: str = "g") -> None:
        """The topics, and both coordinators."""
        self.admin = await self.connect("admin")
        topics = [
            CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
            for name in TOPICS
        ]
        await self.admin.request(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
        async with asyncio.timeout(DEADLINE_S):
            for key, kind in ((group_id, 0), ("x", 1)):
                while True:
                    answer = await self.admin.request(FindCoordinatorRequest(coordinator_keys=[key], key_type=kind))
                    if not answer.coordinators[0].error_code:
                        break
            while (
                await self.admin.request(ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
            ).error_code:
                pass
            # The first id that is ever given out may be 0, which errors tell too.
            while (await self.begin(None)).error_code:
                pass
            while (await self.begin("ready")).error_code:
                pass
            names = [MetadataRequestTopic(name=name) for name in TOPICS]
            while any(topic.error_code for topic in (await self.admin.request(MetadataRequest(topics=names))).topics):
                pass

    def note(self, label: str, answer: Any) -> None:
        """Log an answer, and name the producer in it."""
        producer_id = getattr(answer, "producer_id", NEVER)
        if producer_id != NEVER and not getattr(answer, "error_code", 0):
            self._producers.setdefault(producer_id, f"producer {len(self._producers)}")
        super().note(label, answer)

    def _plain(self, value: Any, field: str = "") -> Any:
        if field in {"producer_id", "producer_id_filters"}:
            return self._producers.get(value, value)
        if field.endswith("error_code"):
            return ErrorCode(value).name
        if field.endswith(("_time_ms", "timestamp")):
            return value > 0
        if field == "error_message":
            return "words"
        return super()._plain(value, field)

    # Requests

    async def begin(
        self, name: str | None, identity: Identity = (-1, -1), *, timeout_ms: int = 60_000, at_most: int | None = None
    ) -> Any:
        """InitProducerId, without a line in the log."""
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=identity[0],
            producer_epoch=identity[1],
        )
        return await self.admin.request(request, at_most=at_most)

    async def begun(self, label: str, name: str | None, identity: Identity = (-1, -1), **options: Any) -> Identity:
        """InitProducerId, logged, and its outcome; CONCURRENT_TRANSACTIONS is asked again as a client does."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await self.begin(name, identity, **options)
                if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    break
                await self.settled(name or "")
        self.note(label, answer)
        return answer.producer_id, answer.producer_epoch

    async def add(self, label: str, name: str, identity: Identity, *places: Place, at_most: int = 3) -> None:
        """AddPartitionsToTxn as clients send it; CONCURRENT_TRANSACTIONS is asked again."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=identity[0],
            v3_and_below_producer_epoch=identity[1],
            v3_and_below_topics=by_topic(places or (READ,)),
        )
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await self.admin.request(request, at_most=at_most)
                results = answer.results_by_topic_v3_and_below
                codes = {row.partition_error_code for topic in results for row in topic.results_by_partition}
                if ErrorCode.CONCURRENT_TRANSACTIONS not in codes:
                    break
                await self.settled(name)
        self.note(label, answer)

    async def batch(
        self, label: str, name: str, identity: Identity, *places: Place, verify: bool, at_most: int = 5
    ) -> None:
        """AddPartitionsToTxn as brokers send it."""
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=identity[0],
            producer_epoch=identity[1],
            verify_only=verify,
            topics=by_topic(places),
        )
        await self.ask(label, AddPartitionsToTxnRequest(transactions=[transaction]), at_most=at_most)

    async def end(
        self, label: str, name: str, identity: Identity, *, commit: bool = True, at_most: int = 5
    ) -> Identity:
        """EndTxn, and the markers waited for; the identity after it."""
        request = EndTxnRequest(
            transactional_id=name, producer_id=identity[0], producer_epoch=identity[1], committed=commit
        )
        await self.settled(name)
        answer = await self.ask(label, request, at_most=at_most)
        await self.settled(name)
        return answer.producer_id, answer.producer_epoch

    async def settled(self, name: str) -> None:
        """Return when the transaction is not being ended."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await self.admin.request(DescribeTransactionsRequest(transactional_ids=[name]))
                if not answer.transaction_states[0].transaction_state.startswith("Prepare"):
                    return
                await asyncio.sleep(0.01)

    async def until(
        self, name: str, state: str, members: int | None = None, *, markers: Mapping[Place, int] = MappingProxyType({})
    ) -> None:
        """Return when the transaction is in this state.

        Args:
            markers: how many transactions have ended in each partition: each has so many markers then, and nothing is open there.
        """
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await self.admin.request(DescribeTransactionsRequest(transactional_ids=[name]))
                if answer.transaction_states[0].transaction_state == state:
                    break
                await asyncio.sleep(0.01)
        for place, count in markers.items():
            await self.read(f"markers of {place}", place, committed=False)
            code, high_watermark, last_stable, batches, _ = self.log.pop()[1]
            written = sum(content == "a marker" for *_, content in batches)
            assert (code, written, last_stable) == (ErrorCode.NONE, count, high_watermark), place

    async def produce(
        self,
        label: str,
        name: str | None,
        identity: Identity,
        place: Place,
        *,
        sequence: int,
        at_most: int,
        transactional: bool = True,
    ) -> int:
        """Produce one record of a transaction, or outside of any, with a version that names topics; the error."""
        builder = BatchBuilder(
            producer_id=identity[0], producer_epoch=identity[1], base_sequence=sequence, transactional=transactional
        )
        builder.append(current_machine().wall_ms(), None, label.encode())
        data = PartitionProduceData(index=place[1], records=builder.build())
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=place[0], partition_data=[data])],
        )
        answer = await self.ask(label, request, at_most=at_most)
        code = answer.responses[0].partition_responses[0].error_code
        assert isinstance(code, int)
        return code

    async def read(self, label: str, place: Place, *, committed: bool) -> None:
        """What a reader sees: the records that are not of aborted transactions, and what the answer says beside."""
        partition = FetchPartition(partition=place[1], fetch_offset=0, partition_max_bytes=1_000_000)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=int(committed),
            topics=[FetchTopic(topic=place[0], partitions=[partition])],
        )
        answer = await self.admin.request(request, at_most=12)
        data = answer.responses[0].partitions[0]
        shown: list[Any] = []
        for header, batch in iter_batches(bytes(data.records or b"")):
            content = "a marker" if header.is_control else [record.value for record in decode_records(batch)]
            shown.append((header.base_offset, self._producers.get(header.producer_id), header.producer_epoch, content))
        aborted = [
            (self._producers.get(entry.producer_id), entry.first_offset) for entry in data.aborted_transactions or ()
        ]
        self.note(label, [data.error_code, data.high_watermark, data.last_stable_offset, shown, aborted])


def by_topic(places: Sequence[Place]) -> list[AddPartitionsToTxnTopic]:
    """The partitions as a request names them."""
    topics: dict[str, list[int]] = {}
    for topic, number in places:
        topics.setdefault(topic, []).append(number)
    return [AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in topics.items()]


@asynccontextmanager
async def transactions_against(bootstrap_servers: str) -> AsyncIterator[TransactionsRun]:
    """A run that is prepared, and closed at the end."""
    host, _, port = bootstrap_servers.rpartition(":")
    run = TransactionsRun(host, int(port))
    try:
        await run.prepare()
        yield run
    finally:
        run.close()
