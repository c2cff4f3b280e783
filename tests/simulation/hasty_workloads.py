"""Clients of `transaction.version` 1 that ask for the next thing before the last one is answered, as librdkafka does.

Here: rounds of two transactions, of records or of offsets, each with connections of its own for every coordinator.
Not here: clients that wait for their answers (`transaction_workloads`), what the history must look like
(`transaction_checks`).

An end of such a client leaves its epoch, so that only the broker can tell its transactions apart.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, Final

from busway.errors import BuswayError
from busway.net.connection import Connection
from busway.net.machine import current_machine
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.groups_classic import FindCoordinatorRequest
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from busway_protocol.records.builder import BatchBuilder
from tests.simulation.history import Outcome, Partition, Send, value_of
from tests.simulation.transaction_history import Transaction
from tests.simulation.transaction_workloads import ask_offset, reader
from tests.simulation.workloads import RETRY_S, Client

_ANSWER_S: Final = 5.0
_VERSIONS: Final = {
    AddPartitionsToTxnRequest: 3,
    AddOffsetsToTxnRequest: 3,
    TxnOffsetCommitRequest: 3,
    EndTxnRequest: 4,
    ProduceRequest: 11,
    InitProducerIdRequest: 5,
    FindCoordinatorRequest: 4,
}
_AGAIN: Final = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class _Refused(Exception):
    """An answer that ends the round."""


async def hurry(client: Client) -> None:
    """Play rounds, each with a transactional id of its own, so that what is left of one is not mended by the next."""
    client.begin_life()
    consumer = reader(client, client.process)
    await client.persist(consumer.start)
    try:
        for number in range(client.plan.operations):
            await client.pause()
            with contextlib.suppress(BuswayError, _Refused):
                await _play(client, number)
            if client.option("offsets"):
                for partition in client.partitions():
                    look = functools.partial(ask_offset, client, consumer, Partition(*partition))
                    await client.persist(look)
    finally:
        await consumer.stop()


async def _play(client: Client, number: int) -> None:
    async with _connected(client) as round_:
        await round_.begin(f"{client.plan.name}-{client.process}-{number}")
        await (round_.offsets(10 * number + 1) if client.option("offsets") else round_.records(2 * number))


@contextlib.asynccontextmanager
async def _connected(client: Client) -> "AsyncIterator[_Round]":
    host, _, port = client.stage.bootstrap.rpartition(":")
    connections = [Connection(host, int(port), client_id=client.process, timeout_s=_ANSWER_S) for _ in range(3)]
    try:
        for connection in connections:
            await connection.connect()
        yield _Round(client, *connections)
    finally:
        for connection in connections:
            connection.close()


class _Round:
    """Two transactions of one producer, over three connections."""

    def __init__(self, client: Client, adds: Connection, ends: Connection, data: Connection) -> None:
        self._client = client
        self._adds, self._ends, self._data = adds, ends, data
        self._who: Mapping[str, Any] = {}

    async def begin(self, transactional_id: str) -> None:
        """Become the producer of this id."""
        for key_type, key in ((1, transactional_id), (0, self._client.process)):
            await self._ask(self._adds, FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))
        wanted = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=5_000, producer_id=-1, producer_epoch=-1
        )
        answer = await self._certain(self._adds, wanted)
        self._who = {
            "transactional_id": transactional_id,
            "producer_id": answer.producer_id,
            "producer_epoch": answer.producer_epoch,
        }

    async def records(self, number: int) -> None:
        """Commit records, and begin, fill and commit the next transaction while the end of that is being written."""
        client, chance = self._client, self._client.chance
        every = [Partition(*partition) for partition in client.partitions()]
        places = chance.sample(every, chance.randint(1, len(every)))
        first = self._transaction()
        with self._noted(first):
            await self._certain(self._adds, self._add(places))
            await self._produce(first, places, number, sequence=0)
            await self._commit(first)
        second = self._transaction()
        second.asked = client.history.mark()
        # Whether its end came before or after its records is unknown: it counts, or not.
        await self._moment()
        asked = [asyncio.ensure_future(self._ask(self._adds, self._add(places)))]
        await self._moment()
        asked.append(asyncio.ensure_future(self._produce(second, places, number + 1, sequence=1)))
        await self._moment()
        asked.append(asyncio.ensure_future(self._ask(self._ends, self._end(committed=True))))
        await _all_over(asked)
        client.history.end(second, Outcome.INFO, "nobody waited")

    async def offsets(self, offset: int) -> None:
        """Abort a commit of offsets that is not answered yet, and commit one of them in the next transaction."""
        client, every = self._client, [Partition(*partition) for partition in self._client.partitions()]
        aborted = self._transaction(dict.fromkeys(every, offset))
        await self._certain(self._adds, self._add_offsets())
        committing = asyncio.ensure_future(self._ask(self._data, self._commit_offsets(aborted.offsets)))
        await self._moment()
        try:
            await self._certain(self._ends, self._end(committed=False))
        finally:
            client.history.end(aborted, Outcome.FAIL, "aborted")
            await _all_over([committing])
        committing.result()  # one that is still under way would belong to the next transaction, whose epoch is the same
        committed = self._transaction({client.chance.choice(every): offset + 1})
        with self._noted(committed):
            await self._certain(self._adds, self._add_offsets())
            await self._certain(self._data, self._commit_offsets(committed.offsets))
            await self._commit(committed)

    # The parts

    def _transaction(self, offsets: Mapping[Partition, int] | None = None) -> Transaction:
        transaction = Transaction(
            process=self._client.process,
            transactional_id=self._who["transactional_id"],
            group=self._client.process if offsets else "",
            offsets=dict(offsets or {}),
            older=True,
        )
        return self._client.history.begin(transaction)

    @contextlib.contextmanager
    def _noted(self, transaction: Transaction) -> Any:
        try:
            yield
        except BaseException as problem:
            self._client.history.end(transaction, Outcome.INFO, repr(problem))
            raise
        self._client.history.end(transaction)

    async def _moment(self) -> None:
        """Wait for about as long as the disk takes, or hardly at all."""
        sync_s = self._client.stage.plan.delays.get("sync_ms", 1.0) / 1000
        await asyncio.sleep(self._client.chance.choice([0, 0.2, 1, 4]) * sync_s * self._client.chance.random())

    async def _commit(self, transaction: Transaction) -> None:
        transaction.asked = self._client.history.mark()
        await self._certain(self._ends, self._end(committed=True))

    async def _produce(
        self, transaction: Transaction, places: Sequence[Partition], number: int, *, sequence: int
    ) -> None:
        client = self._client
        sends = []
        for place in places:
            value = value_of(client.process, number, place)
            transaction.values.append((place, value))
            send = Send(process=client.process, partition=place, value=value, idempotent=False)
            sends.append(client.history.begin(send))
        try:
            answer = await self._ask(self._data, self._batches(sends, sequence))
        except BaseException as problem:
            for send in sends:
                client.history.end(send, Outcome.INFO, repr(problem))
            raise
        responses = {
            Partition(topic.name, response.index): response
            for topic in answer.responses
            for response in topic.partition_responses
        }
        for send in sends:
            response = responses[send.partition]
            if response.error_code:
                client.history.end(send, Outcome.INFO, error_for(response.error_code).name)
            else:
                send.offset = response.base_offset
                client.history.end(send)
        _check(code for response in responses.values() for code in [response.error_code])

    def _batches(self, sends: Sequence[Send], sequence: int) -> ProduceRequest:
        data: dict[str, list[PartitionProduceData]] = {}
        for send in sends:
            builder = BatchBuilder(
                producer_id=self._who["producer_id"],
                producer_epoch=self._who["producer_epoch"],
                base_sequence=sequence,
                transactional=True,
            )
            builder.append(current_machine().wall_ms(), None, send.value)
            partition_data = PartitionProduceData(index=send.partition.number, records=builder.build())
            data.setdefault(send.partition.topic, []).append(partition_data)
        return ProduceRequest(
            transactional_id=self._who["transactional_id"],
            acks=-1,
            timeout_ms=int(_ANSWER_S * 1000),
            topic_data=[TopicProduceData(name=topic, partition_data=partitions) for topic, partitions in data.items()],
        )

    def _add(self, places: Sequence[Partition]) -> AddPartitionsToTxnRequest:
        topics: dict[str, list[int]] = {}
        for place in places:
            topics.setdefault(place.topic, []).append(place.number)
        return AddPartitionsToTxnRequest(
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()
            ],
            **{f"v3_and_below_{name}": value for name, value in self._who.items()},
        )

    def _add_offsets(self) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(group_id=self._client.process, **self._who)

    def _commit_offsets(self, offsets: Mapping[Partition, int]) -> TxnOffsetCommitRequest:
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for place, offset in offsets.items():
            partition = TxnOffsetCommitRequestPartition(
                partition_index=place.number, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(place.topic, []).append(partition)
        return TxnOffsetCommitRequest(
            group_id=self._client.process,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()
            ],
            **self._who,
        )

    def _end(self, *, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(committed=committed, **self._who)

    # Asking

    async def _ask(self, connection: Connection, request: Any) -> Any:
        return await connection.request(request, at_most=_VERSIONS[type(request)])

    async def _certain(self, connection: Connection, request: Any) -> Any:
        """The answer that it is done; asked again where it may be later.

        Raises:
            _Refused: it is not.
            BuswayError: there is no answer.
        """
        while True:
            answer = await self._ask(connection, request)
            codes = set(map(error_for, _codes(answer))) - {ErrorCode.NONE}
            if not codes & _AGAIN:
                _check(codes)
                return answer
            await asyncio.sleep(RETRY_S / 10)


async def _all_over(asked: Sequence[Awaitable[Any]]) -> None:
    await asyncio.gather(*asked, return_exceptions=True)


def _check(codes: Any) -> None:
    refused = sorted({error_for(code).name for code in codes} - {"NONE"})
    if refused:
        raise _Refused(", ".join(refused))


def _codes(answer: Any) -> list[int]:
    """All error codes in an answer."""
    codes = [answer.error_code] if hasattr(answer, "error_code") else []
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        codes += [partition.partition_error_code for partition in topic.results_by_partition]
    for topic in getattr(answer, "topics", ()):
        codes += [partition.error_code for partition in topic.partitions]
    return codes
