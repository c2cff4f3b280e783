"""Fetch (key 1, versions 4-18): read batches, with a long poll.

Versions: 7 has sessions (KIP-227), 9 checks the leader epoch (KIP-320), 11 has the rack, 12 is flexible and returns a
diverging epoch, 13 has topic ids (KIP-516), 15 moves the replica's state, 18 has a follower's high watermark.
Behaviour: consumers read below the high watermark; with isolation level 1 below the last stable offset, with the
aborted transactions in that range (KIP-98). The first batch is returned even beyond the limit (KIP-74), the last one
may be cut off, as in Kafka. The response is sent when min_bytes are available, a partition has an error or max_wait_ms
is over. Batches are read from the files as the client reads. A batch damaged on disk is CORRUPT_MESSAGE for its own
partition.
*Not supported*: followers, which one node does not have.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, Final
from uuid import UUID

from busway_bus.handlers.common.context import PeerGone, RequestContext
from busway_bus.handlers.common.pending_response import PendingResponse
from busway_bus.log.file_slice import ColdPages, FileSlice, Warming
from busway_bus.replication.delayed_fetch import DelayedFetch
from busway_bus.replication.fetch_sessions import SESSIONLESS, CachedPartition, Session
from busway_bus.replication.partition import Partition
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
READ_TOGETHER: Final = 1_000
READ_AT_ONCE_BYTES: Final = 4 * 1024
"""Size below which records are read at once."""

_NOT_DIVERGING, _UNKNOWN_LEADER, _NO_SNAPSHOT = EpochEndOffset(), LeaderIdAndEpoch(), SnapshotId()
"""Default parts of a partition's response: shared, replaced, never changed."""


def handle(
    request: FetchRequest, context: RequestContext
) -> FetchResponse | PendingResponse | Coroutine[Any, Any, FetchResponse]:
    """Respond at once if enough is available, otherwise wait."""
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, responses=[])
    if context.peer.gone:
        raise PeerGone  # a read has no effect but its response
    try:
        session, full = context.node.sessions.open(
            request, by_id=context.api_version >= TOPIC_IDS_SINCE, now_ms=int(context.node.machine.monotonic_s() * 1000)
        )
    except KafkaError as problem:
        return FetchResponse(error_code=problem.code, responses=[])
    fetch = _Fetch(request, context, session, full)
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
        "_full",
        "_grown",
        "_news",
        "_request",
        "_session",
        "_sizes",
        "_states",
    )

    def __init__(self, request: FetchRequest, context: RequestContext, session: Session, full: bool) -> None:
        super().__init__()
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
        self._delayed = DelayedFetch(self._states, self._enough, ended, self._request.max_wait_ms / 1000)
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
        try:
            current = self._find(cached)
            current.check_epoch(request.current_leader_epoch)
            if self._request.min_bytes <= 1 and request.fetch_offset < self._readable(current):
                return True  # the read determines how much
            if _diverging(current, request.last_fetched_epoch, request.fetch_offset) is not None:
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
            self._states[partition], self._sizes[partition] = cached, 0
            if not self._full and self._nothing_new(partition, cached):
                return 0
            data = self._partition_data(partition, cached)
            if data.diverging_epoch.epoch < 0:
                size = self._records(partition, cached, data, left, wait=wait)
        except KafkaError as problem:
            if partition is not None:
                partition.counters.failed_fetch_requests += 1
            data = _refused(cached, problem.code)
        self._data[cached] = data
        self._news = self._news or data.error_code != ErrorCode.NONE or data.diverging_epoch.epoch >= 0
        return size

    def _find(self, cached: CachedPartition) -> Partition:
        topic, topic_id, partition_index = cached.key
        replicas = self._context.node.replicas
        name: str | None = topic
        if self._context.api_version >= TOPIC_IDS_SINCE:
            name = replicas.name_of(topic_id)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return replicas.find(name or "", partition_index)

    def _readable(self, partition: Partition) -> int:
        return partition.last_stable_offset if self._request.isolation_level else partition.high_watermark

    def _nothing_new(self, partition: Partition, cached: CachedPartition) -> bool:
        """Whether a session's partition is unchanged."""
        request = cached.request
        return (
            not cached.error
            and request.fetch_offset == cached.high_watermark == partition.high_watermark
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
            diverging = _diverging(partition, request.last_fetched_epoch, request.fetch_offset)
            if diverging is not None:
                data.diverging_epoch = diverging
        return data

    def _records(
        self, partition: Partition, cached: CachedPartition, data: PartitionData, left: int, *, wait: bool
    ) -> int:
        """Find the records of a partition; return the bytes.

        KafkaError: OFFSET_OUT_OF_RANGE, disk failure, or damage.
        """
        request = cached.request
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
                batches = partition.log.slice(
                    request.fetch_offset, max_bytes, up_to=data.high_watermark, min_one=min_one, wait=wait
                )
            if batches is None:
                return 0
            size = len(batches)
            data.records = pieces(batches)
        except (ProtocolError, OSError) as problem:
            raise KafkaError(partition.damaged(problem)) from problem
        self._sizes[partition] = size
        self._bytes += size
        return size

    def answer(self) -> FetchResponse:
        if self._bytes:
            for partition, size in self._sizes.items():
                partition.counters.bytes_out += size
        topics: dict[str | UUID, FetchableTopicResponse] = {}
        for cached, data in self._data.items():
            name, topic_id, _ = cached.key
            if not self._full and not _is_news(cached, data):
                continue
            cached.high_watermark, cached.log_start_offset = data.high_watermark, data.log_start_offset
            cached.error = data.error_code
            topic = topics.get(name or topic_id)
            if topic is None:
                topic = FetchableTopicResponse(topic=name, topic_id=topic_id or ZERO_UUID, partitions=[])
                topics[name or topic_id] = topic
            topic.partitions.append(data)
            if data.records:
                self._session.gave(cached.key)
        return FetchResponse(session_id=self._session.id or SESSIONLESS, responses=list(topics.values()))


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


def _diverging(partition: Partition, epoch: int, offset: int) -> EpochEndOffset | None:
    """Return where this log diverges from the client's (KIP-595).

    OFFSET_OUT_OF_RANGE: the epoch is unknown.
    """
    if epoch < 0:
        return None
    common_epoch, end = epoch, partition.log.end_offset
    if epoch != partition.leader_epoch:  # known before its first batch
        common_epoch, end = partition.log.epochs.end_offset(epoch, end)
    if common_epoch < 0 or offset < partition.log.start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if common_epoch == epoch and end >= offset:
        return None
    return EpochEndOffset(epoch=common_epoch, end_offset=end)


def _refused(cached: CachedPartition, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=cached.request.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def _is_news(cached: CachedPartition, data: PartitionData) -> bool:
    return bool(
        data.records
        or data.error_code != ErrorCode.NONE
        or cached.error != ErrorCode.NONE
        or data.high_watermark != cached.high_watermark
        or data.log_start_offset != cached.log_start_offset
        or data.diverging_epoch.epoch >= 0
    )
