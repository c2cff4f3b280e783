"""ShareFetch (key 78, versions 1-2): acquire records of a share group, and acknowledge earlier ones.

Versions: 2 can limit to max_records (KIP-1206) and renews locks (KIP-1222).
Behaviour: a session names partitions once and then only changes; epoch 0 begins one, -1 ends it. Each record is locked
for its member until acknowledgement, release or timeout, and is delivered at most as often as the group's limit. Waits
until min_bytes are available or max_wait_ms is over. Acknowledgements in the request are durable before the response.
Batches are read from the files as the client reads: they may have records that the member has not acquired. Dead-letter
topics (KIP-1191) are Kafka 4.4's; they need `share.version` 2.
"""

import asyncio
from typing import Final
from uuid import UUID

from busway_bus.handlers.common.context import PeerGone, RequestContext
from busway_bus.handlers.common.share_acknowledgements import Acknowledging, Leaders, Refusal, check_member, check_place
from busway_bus.handlers.fetch import pieces
from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.security.operations import Access, Operation, Resource
from busway_bus.share.acquisition import AcquireOptions
from busway_bus.share.delayed_share_fetch import Waiting
from busway_bus.share.fetching import Bounds, ShareFetch, ShareFetchResult
from busway_bus.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession, TopicIdPartition, next_epoch
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.share_groups import (
    AcquiredRecords,
    FetchedPartition,
    LeaderIdAndEpoch,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

API = ApiKey.SHARE_FETCH
VERSIONS = (1, 2)
FEATURE = SHARE_VERSION
NEEDS = (Access(Operation.READ, Resource.GROUP), Access(Operation.READ, Resource.TOPIC))
RECORD_LIMIT = 1
CHECKED_TOGETHER: Final = 5_000


async def handle(request: ShareFetchRequest, context: RequestContext) -> ShareFetchResponse:
    if context.peer.gone:
        raise PeerGone
    try:
        group_id, member_id = check_member(context, request.group_id, request.member_id)
        _check(request)
        session = _session(request, context, group_id, member_id)
    except KafkaError as problem:
        if problem.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            with Waiting(
                context.peer, lambda _: False
            ) as waiting:  # otherwise the client would repeat the request at once
                await waiting.wait(max(request.max_wait_ms, 0) / 1000)
        return _refused(problem)
    acknowledging = Acknowledging(context, group_id, member_id, renews=request.is_renew_ack)
    final = request.share_session_epoch == FINAL_EPOCH
    try:
        if _acknowledges(request):
            await acknowledging.begin(request.topics)
        got = {} if final or request.is_renew_ack else await _fetch(request, context, group_id, member_id, session)
        acknowledged = await acknowledging.finish()
    finally:
        if final:
            context.node.shares.end(session)
    return _answer(request, context, session, got, acknowledged)


def _acknowledges(request: ShareFetchRequest) -> bool:
    return any(partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions)


def _check(request: ShareFetchRequest) -> None:
    """Refuse contradictory requests: INVALID_REQUEST."""
    if request.share_acquire_mode not in {0, RECORD_LIMIT}:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"share_acquire_mode {request.share_acquire_mode} is not 0 or 1")
    if request.is_renew_ack:
        bounds = ("max_bytes", "min_bytes", "max_records", "max_wait_ms")
        if wrong := [name for name in bounds if getattr(request, name) != 0]:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{', '.join(wrong)} must be 0 where is_renew_ack is true")


def _session(request: ShareFetchRequest, context: RequestContext, group_id: str, member_id: str) -> ShareSession:
    """Return the member's updated session; errors as `share.sessions`.

    INVALID_REQUEST for acknowledgements in a new session.
    """
    shares, epoch = context.node.shares, request.share_session_epoch
    partitions = [
        (topic.topic_id, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    if epoch == FINAL_EPOCH:
        return shares.sessions.find(group_id, member_id)
    if epoch == INITIAL_EPOCH:
        if _acknowledges(request):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a session begins without acknowledgements")
        return shares.open(group_id, member_id, partitions, context.peer)
    forget = [
        (topic.topic_id, partition_index)
        for topic in request.forgotten_topics_data
        for partition_index in topic.partitions
    ]
    return shares.sessions.resume(group_id, member_id, epoch, partitions, forget)


async def _fetch(
    request: ShareFetchRequest, context: RequestContext, group_id: str, member_id: str, session: ShareSession
) -> dict[TopicIdPartition, ShareFetchResult]:
    """Acquire from each partition of the session, in rotating order."""
    partitions = list(session.partitions)
    if request.share_session_epoch > 0 and partitions:
        at = request.share_session_epoch % len(partitions)
        partitions = [*partitions[at:], *partitions[:at]]
    got: dict[TopicIdPartition, ShareFetchResult] = {}
    wanted = []
    for count, partition in enumerate(partitions, 1):
        try:
            check_place(context, partition)
            wanted.append(partition)
        except KafkaError as problem:
            got[partition] = ShareFetchResult(problem)
        if count % CHECKED_TOGETHER == 0:
            await asyncio.sleep(0)
    max_bytes = min(request.max_bytes, context.node.config.get("fetch.max.bytes"))
    options = AcquireOptions(
        member_id=member_id,
        max_records=request.max_records,
        batch_size=request.batch_size,
        record_limit=request.share_acquire_mode == RECORD_LIMIT,
    )
    bounds = Bounds(max_wait_ms=request.max_wait_ms, min_bytes=min(request.min_bytes, max_bytes), max_bytes=max_bytes)
    if wanted:
        fetch = ShareFetch(context.node.shares, group_id, options, bounds, peer=context.peer, gone=PeerGone)
        got |= await fetch.run(wanted)
    return got


def _answer(
    request: ShareFetchRequest,
    context: RequestContext,
    session: ShareSession,
    got: dict[TopicIdPartition, ShareFetchResult],
    acknowledged: dict[TopicIdPartition, Refusal],
) -> ShareFetchResponse:
    running = request.share_session_epoch > 0
    if running and session.epoch != next_epoch(request.share_session_epoch):
        for fetched in got.values():
            fetched.take_back(session.member_id)
        return _refused(KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "the session has gone on meanwhile"))
    leaders = Leaders(context)
    answers: dict[TopicIdPartition, FetchedPartition] = {}
    for partition, fetched in got.items():
        if not running or _is_news(session, partition, fetched):
            answers[partition] = _partition_row(partition, fetched, leaders)
    for partition, problem in acknowledged.items():
        answer = answers.get(partition)
        if answer is None:
            answer = answers[partition] = _partition_row(partition, ShareFetchResult(), leaders)
        if problem is not None:
            answer.acknowledge_error_code, answer.acknowledge_error_message = problem.code, problem.message
    topics: dict[UUID, ShareFetchableTopicResponse] = {}
    for partition, answer in answers.items():
        topic = topics.setdefault(partition[0], ShareFetchableTopicResponse(topic_id=partition[0], partitions=[]))
        topic.partitions.append(answer)
    return ShareFetchResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=context.node.shares.limits(session.group_id).lock_ms,
        responses=list(topics.values()),
        node_endpoints=leaders.endpoints,
    )


def _is_news(session: ShareSession, partition: TopicIdPartition, got: ShareFetchResult) -> bool:
    """Whether a running session's response includes a partition; update the session.

    It does with records or an error, in the first response after the error, and in the partition's first. A partition
    that gave records moves to the end.
    """
    due = session.partitions.get(partition, False)
    if partition in session.partitions:
        session.partitions[partition] = got.error is not None
        if got.records is not None:
            session.gave(partition)
    return due or got.error is not None or got.records is not None


def _partition_row(partition: TopicIdPartition, got: ShareFetchResult, leaders: Leaders) -> FetchedPartition:
    return FetchedPartition(
        partition_index=partition[1],
        error_code=ErrorCode.NONE if got.error is None else got.error.code,
        error_message=None if got.error is None else got.error.message,
        acknowledge_error_code=ErrorCode.NONE,
        current_leader=LeaderIdAndEpoch() if got.error is None else leaders.of(partition, got.error),
        records=b"" if got.records is None else pieces(got.records),
        acquired_records=[
            AcquiredRecords(
                first_offset=acquired.first, last_offset=acquired.last, delivery_count=acquired.delivery_count
            )
            for acquired in got.acquired
        ],
    )


def _refused(problem: KafkaError) -> ShareFetchResponse:
    return ShareFetchResponse(
        throttle_time_ms=0,
        error_code=problem.code,
        error_message=problem.message,
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )
