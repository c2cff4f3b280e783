"""Calls of transactions, right and wrong ones.

Here: one class for each call.
Not here: who makes them (`illegal_callers`), in which order (`illegal_orders`).
"""

from dataclasses import dataclass
from typing import Any

from tests.integration.broker.illegal_callers import LEFT_OUT, Member, Producer, compared, topic_of
from tests.integration.broker.illegal_world import TOPIC, Outcome, World
from tests.integration.broker.transactions_probe import by_topic

from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from busway_protocol.records.builder import BatchBuilder


@dataclass(frozen=True)
class Init:
    """InitProducerId."""

    producer: Producer
    fresh: bool
    version: int

    async def make(self, world: World) -> Outcome:
        identity = (-1, -1) if self.fresh or self.version < 3 else self.producer.of(world)
        name = world.name_of(self.producer.slot)
        state, epoch = (await world.transactions())[self.producer.slot // 2]
        if state == "Ongoing" and identity[1] not in {-1, epoch}:
            # Busway fences the epoch of another. Kafka looks at it only once it has aborted the open transaction for it.
            return LEFT_OUT
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=60_000,
            producer_id=identity[0],
            producer_epoch=identity[1],
        )
        answer = await world.ask(request, self.version)
        if not answer.error_code:
            world.gave(self.producer.slot, answer)
            world.lapsing.discard(name)
        return compared(answer, answer.producer_epoch)


@dataclass(frozen=True)
class TimeOut:
    """A new producer's transaction with a time-out of 1 ms, and no end of it."""

    slot: int
    partition: int

    async def make(self, world: World) -> Outcome:
        name = world.name_of(self.slot)
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1)
        answer = await world.ask(request, 5)
        world.gave(self.slot, answer)
        world.lapsing.add(name)
        added = await AddPartitions(Producer(self.slot), self.partition, verify=False, version=3).added(world)
        epoch = await world.until_timed_out(self.slot)
        world.saw(TimedOut(name, epoch), 0, None)
        return compared([answer, added], answer.producer_epoch, epoch)


@dataclass(frozen=True)
class TimedOut:
    """What a model sees of a transaction that has timed out: no request."""

    name: str
    epoch: int


@dataclass(frozen=True)
class AddPartitions:
    """AddPartitionsToTxn, as clients send it up to version 3 and as brokers do from 4 on."""

    producer: Producer
    partition: int
    verify: bool
    version: int

    async def make(self, world: World) -> Outcome:
        return compared(await self.added(world)) if self.producer.may_begin(world) else LEFT_OUT

    async def added(self, world: World) -> Any:
        """The answer."""
        name = world.name_of(self.producer.slot)
        producer_id, epoch = self.producer.of(world)
        topics = by_topic([(world.written_to, self.partition)])
        if self.version <= 3:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=self.verify,
                topics=topics,
            )
            request = AddPartitionsToTxnRequest(transactions=[transaction])
        return await world.ask(request, self.version)


@dataclass(frozen=True)
class AddOffsets:
    """AddOffsetsToTxn."""

    producer: Producer
    version: int

    async def make(self, world: World) -> Outcome:
        if not self.producer.may_begin(world):
            return LEFT_OUT
        producer_id, epoch = self.producer.of(world)
        request = AddOffsetsToTxnRequest(
            transactional_id=world.name_of(self.producer.slot),
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=world.group_id,
        )
        return compared(await world.ask(request, self.version))


@dataclass(frozen=True)
class TxnCommit:
    """TxnOffsetCommit; version 5 begins the transaction."""

    producer: Producer
    member: Member
    partition: int
    version: int

    async def make(self, world: World) -> Outcome:
        if not self.producer.may_begin(world):
            return LEFT_OUT
        producer_id, epoch = self.producer.of(world)
        member_id, generation = self.member.of(world) if self.version >= 3 else ("", -1)
        offset = TxnOffsetCommitRequestPartition(
            partition_index=self.partition, committed_offset=world.calls, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=world.name_of(self.producer.slot),
            group_id=world.group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self.member.instance_of(world) if self.version >= 3 else None,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[offset])],
        )
        return compared(await world.ask(request, self.version))


@dataclass(frozen=True)
class Produce:
    """Produce of one record; version 12 begins the transaction, 13 names the topic by its id."""

    producer: Producer
    topics: tuple[str, ...]
    partition: int
    skip: int
    transactional: bool
    named: bool
    version: int

    async def make(self, world: World) -> Outcome:
        if not self.producer.may_begin(world):
            return LEFT_OUT
        identity = self.producer.of(world)
        named = [topic_of(world, topic, by_id=self.version >= 13, written=True) for topic in self.topics]
        place = (identity, self.partition)
        if identity[1] < 0:
            # Busway refuses a producer id without an epoch (INVALID_RECORD). Kafka writes it, and checks no sequence of that producer.
            return LEFT_OUT
        if not self.transactional and self.producer.shift > 0:
            # A marker has a lower epoch than such a record. Kafka's log refuses it, and the transaction never ends; in Busway it does.
            return LEFT_OUT
        refused = [begins for producer_id, begins in world.turned_away if producer_id == identity[0]]
        if not self.transactional and refused:
            # Kafka holds the sequences of a transactional batch that it refused against batches outside of transactions too.
            return LEFT_OUT
        sequence = max(world.written.get(place, 0) + self.skip, 0)
        begins = self.version >= 12
        if sequence and (not begins) in refused:
            # One that it refused of an older version lets a newer one begin with any sequence, and one of a newer version keeps an older one
            # from it.
            return LEFT_OUT
        builder = BatchBuilder(
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=sequence,
            transactional=self.transactional,
        )
        builder.append(1_700_000_000_000, None, b"value %d" % world.calls)
        data = PartitionProduceData(index=self.partition, records=builder.build())
        request = ProduceRequest(
            transactional_id=world.name_of(self.producer.slot) if self.named else None,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(**topic, partition_data=[data]) for topic in named],
        )
        answer = await world.ask(request, self.version)
        codes = [partition.error_code for topic in answer.responses for partition in topic.partition_responses]
        if not all(codes):
            world.written[place] = sequence + 1
        elif self.transactional:
            world.turned_away.add((identity[0], begins))
        return compared(sorted(answer.responses, key=lambda topic: (topic.name, topic.topic_id)))


@dataclass(frozen=True)
class End:
    """EndTxn; version 5 raises the epoch."""

    producer: Producer
    commit: bool
    version: int

    async def make(self, world: World) -> Outcome:
        producer_id, epoch = self.producer.of(world)
        request = EndTxnRequest(
            transactional_id=world.name_of(self.producer.slot),
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=self.commit,
        )
        answer = await world.ask(request, self.version)
        if not answer.error_code and self.version >= 5:
            world.gave(self.producer.slot, answer)
        return compared(answer, answer.producer_epoch)
