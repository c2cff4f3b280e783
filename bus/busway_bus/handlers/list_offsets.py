"""ListOffsets (key 2, versions 1-11): offsets by timestamp, and the ends of a log.

Versions: 2 has the isolation level, 4 the leader epoch, 6 is flexible, 7 has the largest timestamp (-3), 8 the earliest
local offset (-4), 9 the last tiered one (-5), 11 the earliest pending upload (-6).
Behaviour: -1 is the high watermark, with isolation level 1 the last stable offset, -2 the log start; a timestamp is the
first record at or after it (KIP-79). Only what consumers may read counts, for -3 too; a follower gets the end of the
log. A new leader answers OFFSET_NOT_AVAILABLE (KIP-207) until it has committed what its log had at its election, before
version 5 LEADER_NOT_AVAILABLE. Other brokers than the leader answer only the debugging id -2.
*Not supported*: tiers; -4 is the log start, -5 and -6 answer -1.
"""

from collections.abc import Awaitable, Generator
from typing import Final

from busway_bus.handlers.common.context import RequestContext, finished
from busway_bus.log.times import OffsetAndTimestamp, Search
from busway_bus.replication.partition import Partition
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

API = ApiKey.LIST_OFFSETS
VERSIONS = (1, 11)
NEEDS = (Access(Operation.DESCRIBE, Resource.TOPIC),)
LEADER_EPOCH_SINCE = 4
NOT_AVAILABLE_SINCE = 5
DEBUGGING = -2
Searches = list[tuple[ListOffsetsPartitionResponse, Partition, int, bool]]
"""Incomplete partitions with their timestamp, and whether only committed records count."""
NOTHING: OffsetAndTimestamp = (-1, -1, -1)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6

LOOKED_UP_AT_ONCE: Final = 1_000


def handle(
    request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """Look up each partition, off the event loop if it needs reads."""
    if sum(len(topic.partitions) for topic in request.topics) > LOOKED_UP_AT_ONCE:
        return _in_slices(request, context)
    searches: Searches = []
    response = finished(_response(request, context, searches))
    return _searched(response, searches, context) if searches else response


async def _in_slices(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    searches: Searches = []
    steps = _response(request, context, searches)
    response = await context.node.scheduler.run(context.client_host, steps)
    return await _searched(response, searches, context)


def _response(
    request: ListOffsetsRequest, context: RequestContext, searches: Searches
) -> Generator[None, None, ListOffsetsResponse]:
    response = ListOffsetsResponse(topics=[])
    for topic in request.topics:
        topic_response = ListOffsetsTopicResponse(name=topic.name, partitions=[])
        response.topics.append(topic_response)
        for partition in topic.partitions:
            topic_response.partitions.append(_look_up(topic.name, partition, request, context, searches))
            yield
    return response


def _look_up(
    topic: str, query: ListOffsetsPartition, request: ListOffsetsRequest, context: RequestContext, searches: Searches
) -> ListOffsetsPartitionResponse:
    committed = request.isolation_level > 0
    answer = ListOffsetsPartitionResponse(partition_index=query.partition_index, error_code=ErrorCode.NONE)
    try:
        partition = context.node.replicas.find(topic, query.partition_index)
        partition.check_epoch(query.current_leader_epoch)
        if request.replica_id != DEBUGGING:
            partition.check_leader()
        if request.replica_id >= 0 and query.timestamp == LATEST:
            located: OffsetAndTimestamp | None = (partition.log.end_offset, -1, partition.leader_epoch)
        else:
            located = _at_hand(partition, query.timestamp, committed)
            if query.timestamp == LATEST:
                _check_available(partition)
    except KafkaError as problem:
        answer.error_code = _code(problem, context)
        return answer
    if located is None:
        searches.append((answer, partition, query.timestamp, committed))
    else:
        _set_offset(answer, located, context)
    return answer


def _check_available(partition: Partition) -> None:
    """Raise OFFSET_NOT_AVAILABLE: the new leader's high watermark may be below its predecessor's."""
    state = partition.state
    if partition.leads and state.high_watermark < state.leader_epoch_start:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)


def _code(problem: KafkaError, context: RequestContext) -> ErrorCode:
    if problem.code is ErrorCode.OFFSET_NOT_AVAILABLE and context.api_version < NOT_AVAILABLE_SINCE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return problem.code


def _set_offset(answer: ListOffsetsPartitionResponse, located: OffsetAndTimestamp, context: RequestContext) -> None:
    answer.offset, answer.timestamp, leader_epoch = located
    if context.api_version >= LEADER_EPOCH_SINCE:
        answer.leader_epoch = leader_epoch


async def _searched(response: ListOffsetsResponse, searches: Searches, context: RequestContext) -> ListOffsetsResponse:
    replicas = context.node.replicas
    for answer, partition, timestamp, committed in searches:
        try:
            try:
                located = await replicas.slices.run(_search(partition, timestamp, committed))
            except (ProtocolError, OSError) as problem:
                replicas.find(
                    partition.topic, partition.index
                )  # raises if the topic was deleted: then it is not damaged
                raise KafkaError(partition.damaged(problem)) from problem
            if located is None:
                _check_available(partition)
            _set_offset(answer, located or NOTHING, context)
        except KafkaError as problem:
            answer.error_code = _code(problem, context)
    return response


def _at_hand(partition: Partition, timestamp: int, committed: bool) -> OffsetAndTimestamp | None:
    """Return an offset known without reads."""
    if timestamp == LATEST:
        return _readable(partition, committed), -1, partition.leader_epoch
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return partition.log.start_offset, -1, partition.leader_epoch
    if timestamp in {LATEST_TIERED, EARLIEST_PENDING}:
        return NOTHING
    if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
        return None
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning")


def _readable(partition: Partition, committed: bool) -> int:
    return partition.last_stable_offset if committed else partition.high_watermark


def _search(partition: Partition, timestamp: int, committed: bool) -> Search:
    up_to = _readable(partition, committed)
    if timestamp == MAX_TIMESTAMP:
        return partition.log.search_largest_time(up_to=up_to)
    return partition.log.search_time(timestamp, up_to=up_to)
