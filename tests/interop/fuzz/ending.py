"""What an order of calls has left on one broker, in terms that are the same on every broker.

Here: reading partitions, producers, transactions, offsets and groups, with ids replaced by names.
Not here: comparing them.
"""

import asyncio
from typing import Any, Final

from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from busway_protocol.messages.groups_classic import (
    DescribeGroupsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from busway_protocol.messages.groups_modern import ConsumerGroupDescribeRequest
from busway_protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    TopicRequest,
)
from busway_protocol.records.batch import iter_batches
from busway_protocol.records.record import decode_records
from tests.integration.broker.illegal_world import TOPIC, World
from tests.support.patience import patient

PARTITIONS: Final = (0, 1)
MARKER: Final = b"marker"
ENDED_WITHIN_S: Final = patient(20.0)
Ending = dict[str, Any]


async def ending_of(world: World) -> Ending:
    """Read the state that all calls of an order have left."""
    ending: Ending = {}
    await world.settled()
    async with asyncio.timeout(ENDED_WITHIN_S):
        for partition in PARTITIONS:
            ending[f"partition {partition}"] = await _partition(world, partition)
            ending[f"committed in partition {partition}"] = await _contents(world, partition, committed=True)
            ending[f"all in partition {partition}"] = await _contents(world, partition, committed=False)
        ending["producers"] = await _producers(world)
        ending["transactions"] = await _transactions(world)
        ending["offsets"] = await _offsets(world, stable=False)
        ending["stable offsets"] = await _offsets(world, stable=True)
        ending["classic group"] = await _classic(world)
        ending["consumer group"] = await _modern(world)
    return ending


async def _fetch(world: World, partition: int, offset: int, *, committed: bool) -> Any:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1_000_000)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=world.written_to, partitions=[asked])],
    )
    return (await world.line.admin.request(request, at_most=12)).responses[0].partitions[0]


async def _partition(world: World, partition: int) -> Ending:
    data = await _fetch(world, partition, 0, committed=True)
    return {
        "error": ErrorCode(data.error_code).name,
        "high watermark": data.high_watermark,
        "last stable offset": data.last_stable_offset,
    }


async def _contents(world: World, partition: int, *, committed: bool) -> list[tuple[int, bytes | None]]:
    """Offset and value of each record, markers too; without what belongs to aborted transactions where `committed`.

    It reads on until there is nothing more: an answer may hold the first batch alone.
    """
    contents: list[tuple[int, bytes | None]] = []
    offset = 0
    while True:
        data = await _fetch(world, partition, offset, committed=committed)
        batches = list(iter_batches(bytes(data.records or b"")))
        if not batches:
            return contents
        starts = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
        aborting: set[int] = set()
        for header, batch in batches:
            while starts and starts[0][0] <= header.last_offset:
                aborting.add(starts.pop(0)[1])
            offset = header.next_offset
            if header.is_control:
                aborting.discard(header.producer_id)
                contents.append((header.base_offset, MARKER))
            elif not (committed and header.is_transactional and header.producer_id in aborting):
                contents += [(record.offset, record.value) for record in decode_records(batch)]


async def _producers(world: World) -> Ending:
    request = DescribeProducersRequest(topics=[TopicRequest(name=world.written_to, partition_indexes=list(PARTITIONS))])
    answer = await world.line.admin.request(request)
    return {
        f"partition {partition.partition_index}": sorted(
            (
                world.producer_name(each.producer_id),
                each.producer_epoch,
                each.last_sequence,
                each.current_txn_start_offset,
            )
            for each in partition.active_producers
        )
        for topic in answer.topics
        for partition in topic.partitions
    }


async def _transactions(world: World) -> Ending:
    answer = await world.line.admin.request(DescribeTransactionsRequest(transactional_ids=list(world.names)))
    return {
        each.transactional_id: (
            ErrorCode(each.error_code).name,
            each.transaction_state,
            each.transaction_timeout_ms,
            world.producer_name(each.producer_id),
            each.producer_epoch,
            each.transaction_start_time_ms > 0,
            sorted((topic.topic, sorted(topic.partitions)) for topic in each.topics),
        )
        for each in answer.transaction_states
    }


async def _offsets(world: World, *, stable: bool) -> Ending:
    """By partition of the topic that groups read: the committed offset, or the error."""
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(PARTITIONS))]
    group = OffsetFetchRequestGroup(group_id=world.group_id, topics=topics)
    answer = await world.line.admin.request(OffsetFetchRequest(groups=[group], require_stable=stable), at_most=9)
    answered = answer.groups[0]
    return {"error": ErrorCode(answered.error_code).name} | {
        f"partition {each.partition_index}": (ErrorCode(each.error_code).name, each.committed_offset)
        for topic in answered.topics
        for each in topic.partitions
    }


async def _classic(world: World) -> Ending:
    group = (await world.line.admin.request(DescribeGroupsRequest(groups=[world.group_id]))).groups[0]
    return {
        "error": ErrorCode(group.error_code).name,
        "state": group.group_state,
        "protocol": (group.protocol_type, group.protocol_data),
        "members": sorted(
            (
                world.member_name(each.member_id),
                each.group_instance_id or "",
                # On purpose: members of a consumer group that becomes a classic one and has to rebalance keep what they have
                # (`migration.downgrade`), in Kafka their target assignment.
                each.member_assignment if group.group_state == "Stable" else b"",
            )
            for each in group.members
        ),
    }


async def _modern(world: World) -> Ending:
    request = ConsumerGroupDescribeRequest(group_ids=[world.group_id], include_authorized_operations=False)
    group = (await world.line.admin.request(request)).groups[0]
    # A broker draws the ids of classic members, and assigns by their order.
    drawn = bool(world.everyone) or any(world.member_name(each.member_id) != each.member_id for each in group.members)
    return {
        "error": ErrorCode(group.error_code).name,
        "state": group.group_state,
        "epochs": (group.group_epoch, group.assignment_epoch),
        "assignor": group.assignor_name,
        "members": sorted(
            (
                world.member_name(each.member_id),
                each.instance_id or "",
                each.member_epoch,
                tuple(each.subscribed_topic_names or ()),
                each.subscribed_topic_regex or "",
                *(() if drawn else (_assigned(each.assignment), _assigned(each.target_assignment))),
            )
            for each in group.members
        ),
    }


def _assigned(assignment: Any) -> tuple[int, ...]:
    return tuple(sorted(number for topic in assignment.topic_partitions for number in topic.partitions))
