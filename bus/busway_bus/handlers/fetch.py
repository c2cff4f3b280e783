"""Fetch (key 1, versions 4-18): read batches, with a long poll.

Versions: 7 has sessions (KIP-227), 9 checks the leader epoch (KIP-320), 11 has the rack and lets consumers read from
followers (KIP-392), 12 is flexible and returns a diverging epoch, 13 has topic ids (KIP-516), 15 has a follower's
broker epoch (KIP-903), 16 names the new leader in a refusal (KIP-951), 18 has a follower's high watermark.
Behaviour: consumers read below the high watermark; with isolation level 1 below the last stable offset, with the
aborted transactions in that range (KIP-98). The first batch is returned even beyond the limit (KIP-74), the last one
may be cut off, as in Kafka. The response is sent when min_bytes are available, a partition has an error or max_wait_ms
is over. Batches are read from the files as the client reads. A batch damaged on disk is CORRUPT_MESSAGE for its own
partition. Followers read up to the end of the log; the offset that one fetches from is its end. A broker id that is not
registered is refused.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, Final
from uuid import UUID
from weakref import ref

from busway_bus.handlers.common.context import PeerGone, RequestContext
from busway_bus.handlers.common.fetch_data import diverging_end, endpoints, is_news, refused
from busway_bus.handlers.common.leader_hints import HINTED, LeaderHints
from busway_bus.handlers.common.pending_response import PendingResponse
from busway_bus.log.file_slice import ColdPages, FileSlice, Warming
from busway_bus.replication.delayed_fetch import DelayedFetch
from busway_bus.replication.fetch_sessions import SESSIONLESS, CachedPartition, Session
from busway_bus.replication.isr import FollowerFetch
from busway_bus.replication.partition import Partition
from busway_bus.replication.read_replicas import preferred_replica
from busway_bus.scheduling.off_loop import off_loop
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from busway_protocol.types import ZERO_UUID

API = ApiKey.FETCH
VERSIONS = (4, 18)
NEEDS = (Access(Operation.READ, Resource.TOPIC), Access(Operation.CLUSTER_ACTION, Resource.CLUSTER))
TOPIC_IDS_SINCE = 13
READ_FROM_FOLLOWERS_SINCE = 11
LEADER_HINTS_SINCE = 16
READ_TOGETHER: Final = 1_000
READ_AT_ONCE_BYTES: Final = 4 * 1024
"""Size below which records are read at once."""

_NOT_DIVERGING, _UNKNOWN_LEADER, _NO_SNAPSHOT = EpochEndOffset(), LeaderIdAndEpoch(), SnapshotId()
"""Default parts of a partition's response: shared, replaced, never changed."""


def handle(
    request: FetchRequest, context: RequestContext
) -> FetchResponse | PendingResponse | Coroutine[Any, Any, FetchResponse]:
    """Respond at once if enough is available, otherwise wait."""
    replica = max(request.replica_id, request.replica_state.replica_id)
    follower = None
    if replica >= 0:
        if replica == context.node.node_id or replica not in context.node.image.brokers:
            return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, responses=[])
        follower = context.node.replicas.follower_fetch(replica, request.replica_state.replica_epoch)
    if context.peer.gone:
        raise PeerGone  # a read has no effect but its response
    try:
        session, full = context.node.sessions.open(
            request, by_id=context.api_version >= TOPIC_IDS_SINCE, now_ms=int(context.node.machine.monotonic_s() * 1000)
        )
    except KafkaError as problem:
        return FetchResponse(error_code=problem.code, responses=[])
    fetch = _Fetch(request, context, session, full, follower)
    reading = fetch.read(tuple(session.partitions.values()))
    for pause in reading:
        return fetch.in_parts(pause, reading)
    return fetch.answer() if fetch.satisfied else fetch.delayed()


class _Fetch(PendingResponse):
    """The reads of one request, repeated for changed partitions after a wait."""

    __slots__ = (
        "_bytes",
        "_context",
        "_data",
        "_delayed",
        "_follower",
        "_full",
        "_grown",
        "_hints",
        "_leader_only",
        "_news",
        "_rack",
        "_repeated",
        "_request",
        "_session",
        "_sizes",
        "_states",
    )

    def __init__(
        self,
        request: FetchRequest,
        context: RequestContext,
        session: Session,
        full: bool,
        follower: FollowerFetch | None,
    ) -> None:
        super().__init__()
        self._follower = follower
        self._leader_only = follower is not None or context.api_version < READ_FROM_FOLLOWERS_SINCE
        rack = request.rack_id if follower is None else ""
        self._rack = rack and context.node.replicas.reader_rack(rack)
        self._repeated = False
        self._hints: LeaderHints | None = None
        self._request = request
        self._context = context
        self._session = session
        self._full = full
        self._data: dict[CachedPartition, PartitionData] = {}
        self._states: dict[Partition, CachedPartition] = {}
        self._sizes: dict[Partition, int] = {}
        self._grown: set[CachedPartition] = set()
        self._bytes = 0
        self._news = False

    @property
    def satisfied(self) -> bool:
        request = self._request
        return self._bytes >= request.min_bytes or self._news or not self._states or request.max_wait_ms <= 0

    # Waiting

    def delayed(self) -> PendingResponse:
        """Respond on enough data, an error, or after max_wait_ms."""
        self._delay(self._over)
        return self

    def _delay(self, ended: Callable[[Exception | None], None]) -> DelayedFetch:
        # Without an await since the read, so that no append is missed.
        self._repeated = True
        self._delayed = DelayedFetch(
            self._states,
            self._enough,
            ended,
            self._request.max_wait_ms / 1000,
            of_follower=self._follower is not None,
        )
        self._context.peer.polls.add(self._delayed)
        return self._delayed

    def _over(self, problem: Exception | None) -> None:
        self._context.peer.polls.discard(self._delayed)
        if problem is not None:
            self.fail(problem)
            return
        for _ in self.read(self._changed(), wait=True):
            pass  # few partitions, which were in memory before
        self.complete(self.answer())

    async def in_parts(self, first: Warming | None, reading: Iterator[Warming | None]) -> FetchResponse:
        """Read very many partitions, or from disk, without delaying others."""
        await _yield_or_warm(first)
        for pause in reading:
            await _yield_or_warm(pause)
        if self.satisfied:
            return self.answer()
        if self._context.peer.gone:
            raise PeerGone
        over: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        delayed = self._delay(partial(_settle, over))
        for partition in tuple(self._states):  # for appends between the parts
            delayed.look_at(partition)
        try:
            problem = await over
        finally:
            delayed.end()
            self._context.peer.polls.discard(delayed)
        if problem is not None:
            raise problem
        for pause in self.read(self._changed()):
            await _yield_or_warm(pause)
        return self.answer()

    def _enough(self, partition: Partition) -> bool:
        """Recheck a partition with new data; return whether all have enough."""
        cached = self._states[partition]
        self._grown.add(cached)
        request = cached.request
        if self._request.min_bytes <= 1 and request.fetch_offset < self._readable(partition):
            return True  # the read determines how much, or reports an error
        try:
            current = self._find(cached)
            current.check_epoch(request.current_leader_epoch)
            if self._leader_only:
                self._check_reader(current)
            if diverging_end(current, request.last_fetched_epoch, request.fetch_offset) is not None:
                return True
            extent = current.log.extent(request.fetch_offset, up_to=self._readable(current))
        except (KafkaError, ProtocolError, OSError):
            return True  # the read reports it
        size = 0 if extent is None else min(extent.end - extent.position, request.partition_max_bytes)
        self._bytes += size - self._sizes[partition]
        self._sizes[partition] = size
        return self._bytes >= self._request.min_bytes

    def _changed(self) -> list[CachedPartition]:
        """Return partitions with new data or records, in the session's order."""
        again = self._grown | {cached for cached, data in self._data.items() if data.records}
        return (
            list(again)
            if len(again) < 2
            else [cached for cached in self._session.partitions.values() if cached in again]
        )

    # Reading

    def read(self, partitions: Iterable[CachedPartition], *, wait: bool = False) -> Iterator[Warming | None]:
        """Read partitions, within the limits of the request.

        `wait`: block on the disk. Yields None to let others run, a Warming to wait for the disk.
        """
        left = min(self._request.max_bytes, self._context.node.config.get("fetch.max.bytes"))
        self._bytes = 0
        for count, cached in enumerate(partitions, 1):
            try:
                left -= self._read(cached, left, wait=wait)
            except ColdPages as cold:
                yield cold.warm
                left -= self._read(cached, left, wait=True)
            if count % READ_TOGETHER == 0:
                yield None

    def _read(self, cached: CachedPartition, left: int, *, wait: bool) -> int:
        """Read one partition; return the bytes. Raises ColdPages without `wait`."""
        size = 0
        partition: Partition | None = None
        try:
            partition = self._find(cached)
            partition.counters.fetch_requests += 1
            partition.check_epoch(cached.request.current_leader_epoch)
            if self._leader_only:
                self._check_reader(partition)
            self._states[partition], self._sizes[partition] = cached, 0
            if not self._full and self._nothing_new(partition, cached):
                if self._follower is not None:
                    self._note(partition, cached, self._follower)
                return 0
            data = self._partition_data(partition, cached)
            if data.diverging_epoch.epoch < 0 and data.preferred_read_replica < 0:
                size = self._records(partition, cached, data, left, wait=wait)
                if self._follower is not None:
                    self._note(partition, cached, self._follower)
                    data.high_watermark = partition.high_watermark
        except KafkaError as problem:
            if partition is not None:
                partition.counters.failed_fetch_requests += 1
            data = refused(cached, problem.code)
            if problem.code in HINTED:
                self._hint(cached, data)
        self._data[cached] = data
        self._news = (
            self._news
            or data.error_code != ErrorCode.NONE
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica >= 0
        )
        return size

    def _check_reader(self, partition: Partition) -> None:
        """Refuse what only a leader serves, and a stale follower, with KafkaError."""
        if self._follower is None:
            partition.check_leader()
        else:
            partition.check_follower(self._follower.replica, self._follower.broker_epoch)

    def _note(self, partition: Partition, cached: CachedPartition, follower: FollowerFetch) -> None:
        """Note a follower's offsets, once a request."""
        if not self._repeated:
            partition.fetched(follower, cached.request.fetch_offset, cached.request.log_start_offset)

    def _hint(self, cached: CachedPartition, data: PartitionData) -> None:
        """Name the leader in a refusal (KIP-951)."""
        if self._context.api_version < LEADER_HINTS_SINCE:
            return
        if self._hints is None:
            self._hints = LeaderHints(self._context.node.image, self._context.listener)
        name = cached.key[0] or self._context.node.replicas.name_of(cached.key[1]) or ""
        leader_id, leader_epoch = self._hints.leader(name, cached.key[2])
        data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)

    def _find(self, cached: CachedPartition) -> Partition:
        replicas = self._context.node.replicas
        partition: Partition | None = cached.partition()
        if partition is not None and replicas.local.get((partition.topic, partition.index)) is partition:
            return partition
        topic, topic_id, partition_index = cached.key
        name: str | None = topic
        if self._context.api_version >= TOPIC_IDS_SINCE:
            name = replicas.name_of(topic_id)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = replicas.find(name or "", partition_index)
        cached.partition = ref(partition)
        return partition

    def _readable(self, partition: Partition) -> int:
        if self._follower is not None:
            return partition.log.end_offset
        return partition.last_stable_offset if self._request.isolation_level else partition.high_watermark

    def _nothing_new(self, partition: Partition, cached: CachedPartition) -> bool:
        """Whether a session's partition is unchanged."""
        request = cached.request
        return (
            not cached.error
            and cached.high_watermark == partition.high_watermark
            and request.fetch_offset == (cached.high_watermark if self._follower is None else partition.log.end_offset)
            and cached.log_start_offset == partition.log.start_offset
            and request.last_fetched_epoch in {-1, partition.leader_epoch}
            and cached not in self._data
        )

    def _partition_data(self, partition: Partition, cached: CachedPartition) -> PartitionData:
        request = cached.request
        data = PartitionData(
            partition_index=request.partition,
            error_code=ErrorCode.NONE,
            high_watermark=partition.state.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.start_offset,
            diverging_epoch=_NOT_DIVERGING,
            current_leader=_UNKNOWN_LEADER,
            snapshot_id=_NO_SNAPSHOT,
            aborted_transactions=[] if self._request.isolation_level else None,
            records=b"",
        )
        if request.last_fetched_epoch >= 0:
            diverging = diverging_end(partition, request.last_fetched_epoch, request.fetch_offset)
            if diverging is not None:
                data.diverging_epoch = diverging
        if self._rack and partition.leads:
            data.preferred_read_replica = preferred_replica(
                partition.state,
                self._context.node.image,
                listener=self._context.listener,
                rack=self._rack,
                fetch_offset=request.fetch_offset,
            )
        return data

    def _records(
        self, partition: Partition, cached: CachedPartition, data: PartitionData, left: int, *, wait: bool
    ) -> int:
        """Find the records of a partition; return the bytes.

        KafkaError: OFFSET_OUT_OF_RANGE, disk failure, or damage.
        """
        request = cached.request
        if self._follower is not None:
            shared = self._context.node.replicas.newest_read.get(partition, request.fetch_offset)
            if 0 < len(shared) <= min(left, request.partition_max_bytes):
                data.records = shared
                self._sizes[partition] = len(shared)
                self._bytes += len(shared)
                return len(shared)
        try:
            max_bytes, min_one = min(max(left, 0), request.partition_max_bytes), self._bytes == 0
            if self._request.isolation_level:
                batches, aborted = partition.log.committed_slice(
                    request.fetch_offset, max_bytes, up_to=data.last_stable_offset, min_one=min_one, wait=wait
                )
                data.aborted_transactions = [
                    AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                    for producer_id, first_offset in aborted
                ]
            else:
                up_to = data.high_watermark if self._follower is None else partition.log.end_offset
                batches = partition.log.slice(request.fetch_offset, max_bytes, up_to=up_to, min_one=min_one, wait=wait)
            if batches is None:
                return 0
            size = len(batches)
            data.records = pieces(batches)
            if self._follower is not None and type(data.records) is bytearray:
                self._context.node.replicas.newest_read.note(partition, request.fetch_offset, data.records)
        except (ProtocolError, OSError) as problem:
            raise KafkaError(partition.damaged(problem)) from problem
        self._sizes[partition] = size
        self._bytes += size
        return size

    def answer(self) -> FetchResponse:
        if self._bytes and self._follower is None:
            for partition, size in self._sizes.items():
                partition.counters.bytes_out += size
        topics: dict[str | UUID, FetchableTopicResponse] = {}
        for cached, data in self._data.items():
            name, topic_id, _ = cached.key
            if not self._full and not is_news(cached, data):
                continue
            # The client truncates and ignores the offsets: they are due again.
            diverges = data.diverging_epoch.epoch >= 0
            cached.high_watermark = -1 if diverges else data.high_watermark
            cached.log_start_offset = data.log_start_offset
            cached.error = data.error_code
            topic = topics.get(name or topic_id)
            if topic is None:
                topic = FetchableTopicResponse(topic=name, topic_id=topic_id or ZERO_UUID, partitions=[])
                topics[name or topic_id] = topic
            topic.partitions.append(data)
            if data.records:
                self._session.gave(cached.key)
        return FetchResponse(
            session_id=self._session.id or SESSIONLESS,
            responses=list(topics.values()),
            node_endpoints=[] if self._hints is None else endpoints(self._hints),
        )


def _settle(over: "asyncio.Future[Exception | None]", problem: Exception | None) -> None:
    if not over.done():
        over.set_result(problem)


async def _yield_or_warm(warming: Warming | None) -> None:
    if warming is None:
        await asyncio.sleep(0)
        return
    with contextlib.suppress(ProtocolError, OSError):  # the read raises it again
        await off_loop(warming)


def pieces(batches: FileSlice) -> Any:
    """Return the records for the encoder: bytes, or pieces for the socket."""
    size = len(batches)
    if size < READ_AT_ONCE_BYTES:
        with contextlib.suppress(BlockingIOError):  # the socket waits for the disk
            return batches.take_now(size)
    return [batches]
