"""Members of share groups for tests: each with a connection of its own, responses in a form that can be compared.

Here: producing, fetching, acknowledging.
Not here: what is asked for (`share_scenarios`), and joining a group, which is different for each broker.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from tests.support.patience import patient
from tests.support.raw_client import RawClient

from busway_protocol.errors import ErrorCode
from busway_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.share_groups import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from busway_protocol.records.batch import iter_batches
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000
READY_WITHIN_S = patient(30.0)
Acknowledged = tuple[int, int, Sequence[int]]
"""First offset, last offset, acknowledgement types."""
Join = Callable[["ShareRun", "Member"], Awaitable[None]]


def batch(count: int, **options: Any) -> bytes:
    """So many records in one batch."""
    builder = BatchBuilder(**options)
    for number in range(count):
        builder.append(NOW, None, b"%d" % number)
    return builder.build()


class Member:
    """One member with one connection."""

    def __init__(self, run: "ShareRun", name: str, client: RawClient) -> None:
        self.run, self.name, self.client = run, name, client
        self.member_id = name
        self.epoch = 0

    async def fetch(
        self,
        label: str,
        *acknowledged: Acknowledged,
        epoch: int | None = None,
        partitions: Sequence[int] = (0,),
        forget: Sequence[int] = (),
        wait_ms: int = 200,
        version: int = 2,
        member_id: str | None = None,
        **fields: Any,
    ) -> Any:
        """ShareFetch; logged, and compared."""
        if epoch is None:
            epoch, self.epoch = self.epoch, self.epoch + 1
        batches = [
            AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=list(t)) for a, b, t in acknowledged
        ]
        wanted = [
            FetchPartition(partition_index=number, acknowledgement_batches=batches if number == 0 else [])
            for number in partitions
        ]
        forgotten = [ForgottenTopic(topic_id=self.run.topic_id, partitions=list(forget))] if forget else []
        wishes = {"min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500, **fields}
        request = ShareFetchRequest(
            group_id=self.run.group_id,
            member_id=self.member_id if member_id is None else member_id,
            share_session_epoch=epoch,
            max_wait_ms=wait_ms,
            topics=[FetchTopic(topic_id=self.run.topic_id, partitions=wanted)] if wanted else [],
            forgotten_topics_data=forgotten,
            **wishes,
        )
        answer = await self.client.ask(request, version)
        self.run.log.append((f"{self.name}: {label}", fetched(answer)))
        return answer

    async def acknowledge(
        self,
        label: str,
        *acknowledged: Acknowledged,
        epoch: int | None = None,
        partition: int = 0,
        version: int = 2,
        renew: bool = False,
        topic_id: UUID | None = None,
    ) -> Any:
        """ShareAcknowledge; logged, and compared."""
        if epoch is None:
            epoch, self.epoch = self.epoch, self.epoch + 1
        batches = [
            AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=list(t)) for a, b, t in acknowledged
        ]
        partitions = (
            [AcknowledgePartition(partition_index=partition, acknowledgement_batches=batches)] if acknowledged else []
        )
        request = ShareAcknowledgeRequest(
            group_id=self.run.group_id,
            member_id=self.member_id,
            share_session_epoch=epoch,
            is_renew_ack=renew,
            topics=[AcknowledgeTopic(topic_id=topic_id or self.run.topic_id, partitions=partitions)],
        )
        answer = await self.client.ask(request, version)
        codes = [
            (partition_response.partition_index, ErrorCode(partition_response.error_code).name)
            for topic in answer.responses
            for partition_response in topic.partitions
        ]
        self.run.log.append((f"{self.name}: {label}", (ErrorCode(answer.error_code).name, codes)))
        return answer


def fetched(answer: Any) -> tuple[Any, ...]:
    """What of an answer to ShareFetch is compared: codes, what was acquired, and which batches came."""
    partitions = sorted(
        (
            partition_response.partition_index,
            ErrorCode(partition_response.error_code).name,
            ErrorCode(partition_response.acknowledge_error_code).name,
            [
                (part.first_offset, part.last_offset, part.delivery_count)
                for part in partition_response.acquired_records
            ],
            [(header.base_offset, header.last_offset) for header, _ in iter_batches(partition_response.records or b"")],
        )
        for topic in answer.responses
        for partition_response in topic.partitions
    )
    return ErrorCode(answer.error_code).name, answer.acquisition_lock_timeout_ms, partitions


class ShareRun:
    """One scenario against one broker; `log` is what is compared."""

    def __init__(self, bootstrap_servers: str, group_id: str, topic: str, join: Join) -> None:
        self.bootstrap_servers, self.group_id, self.topic, self._join = bootstrap_servers, group_id, topic, join
        self.log: list[tuple[str, Any]] = []
        self.topic_id = UUID(int=0)
        self._clients: list[RawClient] = []

    async def connect(self) -> RawClient:
        """A connection that ends with the run."""
        client = RawClient(self.bootstrap_servers)
        await client.__aenter__()
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """End the connections."""
        for client in self._clients:
            await client.__aexit__(None, None, None)

    async def prepare(self, partitions: int = 2) -> None:
        """The topic."""
        self.admin = await self.connect()
        wanted = CreatableTopic(
            name=self.topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        await self.admin.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5)
        async with asyncio.timeout(READY_WITHIN_S):
            while True:
                answer = await self.admin.ask(MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)]), 12)
                topic = answer.topics[0]
                if not topic.error_code and not any(
                    partition_response.error_code for partition_response in topic.partitions
                ):
                    break
        self.topic_id = topic.topic_id

    async def produce(self, *batches: bytes, partition: int = 0, transactional_id: str | None = None) -> None:
        """Append batches."""
        for records in batches:
            data = PartitionProduceData(index=partition, records=records)
            topic = TopicProduceData(name=self.topic, partition_data=[data])
            answer = await self.admin.ask(
                ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[topic]), 9
            )
            assert answer.responses[0].partition_responses[0].error_code == 0, answer

    async def member(self, name: str) -> Member:
        """A member of the group."""
        member = Member(self, name, await self.connect())
        await self._join(self, member)
        return member


async def nothing(_: ShareRun, __: Member) -> None:
    """A member that need not join."""


@asynccontextmanager
async def share_run(
    bootstrap_servers: str, group_id: str = "g", topic: str = "t", join: Join = nothing
) -> AsyncIterator[ShareRun]:
    """A run that is prepared, and closed at the end."""
    run = ShareRun(bootstrap_servers, group_id, topic, join)
    try:
        await run.prepare()
        yield run
    finally:
        await run.close()
