"""Calls of transactions, right and wrong ones.

What lives here: one class for each call. What does not: who makes them (`illegal_callers`), in which order (`illegal_orders`).
"""

from dataclasses import dataclass

from tests.integration.broker.illegal_callers import LEFT_OUT, Member, Producer, told, topic_of
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
        state, epoch = await world.transaction()
        if state == "Ongoing" and identity[1] not in {-1, epoch}:
            # Busway fences the epoch of another. Kafka looks at it only once it has aborted the open transaction for it.
            return LEFT_OUT
        request = InitProducerIdRequest(
            transactional_id=world.name,
            transaction_timeout_ms=60_000,
            producer_id=identity[0],
            producer_epoch=identity[1],
        )
        answer = await world.ask(request, self.version)
        if not answer.error_code:
            world.producers[self.producer.slot] = (answer.producer_id, answer.producer_epoch)
        return told(answer, answer.producer_epoch)


@dataclass(frozen=True)
class AddPartitions:
    """AddPartitionsToTxn, as clients send it up to version 3 and as brokers do from 4 on."""

    producer: Producer
    partition: int
    verify: bool
    version: int

    async def make(self, world: World) -> Outcome:
        producer_id, epoch = self.producer.of(world)
        topics = by_topic([(TOPIC, self.partition)])
        if self.version <= 3:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=world.name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=world.name,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=self.verify,
                topics=topics,
            )
            request = AddPartitionsToTxnRequest(transactions=[transaction])
        return told(await world.ask(request, self.version))


@dataclass(frozen=True)
class AddOffsets:
    """AddOffsetsToTxn."""

    producer: Producer
    version: int

    async def make(self, world: World) -> Outcome:
        producer_id, epoch = self.producer.of(world)
        request = AddOffsetsToTxnRequest(
            transactional_id=world.name, producer_id=producer_id, producer_epoch=epoch, group_id=world.group_id
        )
        return told(await world.ask(request, self.version))


@dataclass(frozen=True)
class TxnCommit:
    """TxnOffsetCommit; version 5 begins the transaction."""

    producer: Producer
    member: Member
    partition: int
    version: int

    async def make(self, world: World) -> Outcome:
        producer_id, epoch = self.producer.of(world)
        member_id, generation = self.member.of(world) if self.version >= 3 else ("", -1)
        offset = TxnOffsetCommitRequestPartition(
            partition_index=self.partition, committed_offset=7, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=world.name,
            group_id=world.group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self.member.instance_of(world) if self.version >= 3 else None,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[offset])],
        )
        return told(await world.ask(request, self.version))


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
        identity = self.producer.of(world)
        named = [topic_of(world, topic, by_id=self.version >= 13) for topic in self.topics]
        place = (identity, self.partition)
        if identity[1] < 0:
            # Busway refuses a producer id without an epoch (INVALID_RECORD). Kafka writes it, and checks no sequence of that producer.
            return LEFT_OUT
        refused = [begins for producer_id, begins in world.turned_away if producer_id == identity[0]]
        if not self.transactional and refused:
            # Kafka holds the sequences of a transactional batch that it refused against batches outside of transactions too.
            return LEFT_OUT
        sequence = max(world.written.get(place, 0) + self.skip, 0)
        begins = self.version >= 12
        if sequence and begins and False in refused:
            # One that it refused of an older version lets a newer one begin with any sequence.
            return LEFT_OUT
        builder = BatchBuilder(
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=sequence,
            transactional=self.transactional,
        )
        builder.append(1_700_000_000_000, None, b"value")
        data = PartitionProduceData(index=self.partition, records=builder.build())
        request = ProduceRequest(
            transactional_id=world.name if self.named else None,
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
        return told(sorted(answer.responses, key=lambda topic: (topic.name, topic.topic_id)))


@dataclass(frozen=True)
class End:
    """EndTxn; version 5 raises the epoch."""

    producer: Producer
    commit: bool
    version: int

    async def make(self, world: World) -> Outcome:
        producer_id, epoch = self.producer.of(world)
        request = EndTxnRequest(
            transactional_id=world.name, producer_id=producer_id, producer_epoch=epoch, committed=self.commit
        )
        answer = await world.ask(request, self.version)
        if not answer.error_code and self.version >= 5:
            world.producers[self.producer.slot] = (answer.producer_id, answer.producer_epoch)
        return told(answer, answer.producer_epoch)
