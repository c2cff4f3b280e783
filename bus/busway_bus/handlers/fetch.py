"""Fetch (key 1, versions 4-18): read batches, waiting for them if need be.

Versions: 7 has sessions (KIP-227), 9 checks the leader epoch (KIP-320), 11 names the rack, 12 is flexible and tells a diverging
epoch, 13 names topics by id (KIP-516), 15 moves the replica's state, 18 tells a follower's high watermark.
Behaviour: consumers read below the high watermark; the first batch comes even when it is over the limit (KIP-74), the last one may
be cut off, as in Kafka; answers when min_bytes are there, a partition has an error to tell or max_wait_ms is over. The batches are
read from the files as the client takes them. A batch damaged on disk is CORRUPT_MESSAGE for its own partition.
*Not supported*: followers, which one node does not have.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any, Final
from uuid import UUID

from busway_bus.handlers.context import PeerGone, RequestContext
from busway_bus.log.file_slice import FileSlice
from busway_bus.replication.fetch_sessions import SESSIONLESS, Key, Session, Wanted
from busway_bus.replication.long_poll import LongPoll
from busway_bus.replication.partition import Partition
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from busway_protocol.types import ZERO_UUID

API = ApiKey.FETCH
VERSIONS = (4, 18)
NEEDS = (Access(Operation.READ, Resource.TOPIC), Access(Operation.CLUSTER_ACTION, Resource.CLUSTER))
TOPIC_IDS_SINCE = 13
READ_TOGETHER: Final = 1_000
"""Partitions that are read before others get their turn."""
READ_AT_ONCE_BYTES: Final = 4 * 1024
"""What a partition gives less of than this is read at once: a file kept open for it would cost more."""

Answers = list[tuple[Key, Wanted, PartitionData]]


def handle(request: FetchRequest, context: RequestContext) -> FetchResponse | Awaitable[FetchResponse]:
    """Answer at once when there is enough, otherwise wait."""
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, responses=[])
    if context.peer.gone:
        raise PeerGone  # reading has no other effect than its answer
    try:
        session, full = context.node.sessions.open(
            request, by_id=context.api_version >= TOPIC_IDS_SINCE, now_ms=int(context.node.machine.monotonic_s() * 1000)
        )
    except KafkaError as problem:
        return FetchResponse(error_code=problem.code, responses=[])
    fetch = _Fetch(request, context, session, full)
    if len(session.partitions) > READ_TOGETHER:
        return fetch.in_parts()
    answers = fetch.read()
    if request.max_wait_ms <= 0 or fetch.enough:
        return fetch.response(answers)
    # From here on nothing that is appended may be missed, so the wait begins before anything else runs.
    poll = fetch.poll()
    context.peer.waits(poll.over)
    return fetch.wait(poll)


class _Fetch:
    """One request's reading: once, and where that is not enough once more when it is.

    Attributes:
        enough: whether what was read last should go out now.
    """

    def __init__(self, request: FetchRequest, context: RequestContext, session: Session, full: bool) -> None:
        self._request = request
        self._context = context
        self._session = session
        self._full = full
        self._waiting: dict[Partition, tuple[Key, Wanted]] = {}
        self._sizes: dict[Partition, int] = {}
        self._total = 0
        self.enough = False

    def read(self) -> Answers:
        """Read every partition of the session once, within the limits."""
        answers: Answers = []
        for _ in self._reading(answers):
            pass
        return answers

    def _reading(self, answers: Answers) -> Iterator[None]:
        """Read the partitions into `answers`, with a stop after each `READ_TOGETHER` of them."""
        self._waiting.clear()
        self._sizes.clear()
        left = min(self._request.max_bytes, self._context.node.config.get("fetch.max.bytes"))
        self._total, news = 0, False
        for key, wanted in tuple(self._session.partitions.items()):
            if answers and len(answers) % READ_TOGETHER == 0:
                yield
            data, size = self._read_one(key, wanted, max(left, 0), min_one=self._total == 0)
            left -= size
            self._total += size
            news = news or data.error_code != ErrorCode.NONE or data.diverging_epoch.epoch >= 0
            answers.append((key, wanted, data))
        self.enough = self._total >= self._request.min_bytes or news or not self._waiting

    async def _read_in_parts(self) -> Answers:
        answers: Answers = []
        for _ in self._reading(answers):
            await asyncio.sleep(0)
        return answers

    async def in_parts(self) -> FetchResponse:
        """The same for a client with very many partitions, of whose requests others should not notice anything."""
        answers = await self._read_in_parts()
        if self._request.max_wait_ms <= 0 or self.enough:
            return self.response(answers)
        poll = self.poll()
        self._context.peer.waits(poll.over)
        for partition in tuple(self._waiting):  # what was appended between the parts
            poll.look_at(partition)
        return await self.wait(poll)

    def poll(self) -> LongPoll:
        """The wait for more than what was read."""
        return LongPoll(self._waiting, self._grown, self._request.max_wait_ms / 1000)

    async def wait(self, poll: LongPoll) -> FetchResponse:
        """Answer when there is enough, an error to tell, or the time is over."""
        try:
            await poll.over
        finally:
            poll.over.cancel()
        return self.response(await self._read_in_parts())

    def _grown(self, partition: Partition) -> bool:
        """Look again at a partition that has more; whether all of them together have enough now."""
        key, wanted = self._waiting[partition]
        try:
            known = self._find(key)
            known.check_epoch(wanted.request.current_leader_epoch)
            if _diverging(known, wanted.request.last_fetched_epoch, wanted.request.fetch_offset) is not None:
                return True
            extent = known.log.extent(wanted.request.fetch_offset, up_to=known.high_watermark)
        except (KafkaError, ProtocolError, OSError):
            return True  # reading tells the client
        size = 0 if extent is None else min(extent.end - extent.position, wanted.request.partition_max_bytes)
        self._total += size - self._sizes[partition]
        self._sizes[partition] = size
        return self._total >= self._request.min_bytes

    def _read_one(self, key: Key, wanted: Wanted, left: int, *, min_one: bool) -> tuple[PartitionData, int]:
        request = wanted.request
        try:
            partition = self._find(key)
            partition.check_epoch(request.current_leader_epoch)
            self._waiting[partition], self._sizes[partition] = (key, wanted), 0
            return self._read_led(partition, wanted, left, min_one=min_one)
        except KafkaError as problem:
            return _refused(request.partition, problem.code), 0

    def _read_led(self, partition: Partition, wanted: Wanted, left: int, *, min_one: bool) -> tuple[PartitionData, int]:
        request = wanted.request
        high_watermark = partition.high_watermark
        data = PartitionData(
            partition_index=request.partition,
            error_code=ErrorCode.NONE,
            high_watermark=high_watermark,
            last_stable_offset=high_watermark,
            log_start_offset=partition.log.start_offset,
            aborted_transactions=[] if self._request.isolation_level else None,
            records=b"",
        )
        diverging = _diverging(partition, request.last_fetched_epoch, request.fetch_offset)
        if diverging is not None:
            data.diverging_epoch = diverging
            return data, 0
        try:
            found = partition.log.slice(
                request.fetch_offset, min(left, request.partition_max_bytes), up_to=high_watermark, min_one=min_one
            )
            size = 0 if found is None else len(found)
            data.records = _records(found)
        except (ProtocolError, OSError) as problem:
            return _refused(request.partition, partition.damaged(problem)), 0
        self._sizes[partition] = size
        return data, size

    def _find(self, key: Key) -> Partition:
        topic, topic_id, number = key
        replicas = self._context.node.replicas
        name: str | None = topic
        if self._context.api_version >= TOPIC_IDS_SINCE:
            name = replicas.name_of(topic_id)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return replicas.find(name or "", number)

    def response(self, answers: Answers) -> FetchResponse:
        """The answer: in a running session only what has changed for the client."""
        topics: dict[tuple[str, UUID], FetchableTopicResponse] = {}
        for key, wanted, data in answers:
            name, topic_id, _ = key
            if not self._full and not _news(wanted, data):
                continue
            wanted.high_watermark, wanted.log_start_offset = data.high_watermark, data.log_start_offset
            wanted.error = data.error_code
            topic = topics.get((name, topic_id))
            if topic is None:
                topic = FetchableTopicResponse(topic=name, topic_id=topic_id or ZERO_UUID, partitions=[])
                topics[name, topic_id] = topic
            topic.partitions.append(data)
            if data.records:
                self._session.gave(key)
        return FetchResponse(session_id=self._session.id or SESSIONLESS, responses=list(topics.values()))


def _records(found: FileSlice | None) -> Any:
    """What the encoder takes for records: bytes, or a list of pieces that it passes on to the socket as they are."""
    if found is None:
        return b""
    return [found] if len(found) >= READ_AT_ONCE_BYTES else found.take(len(found))


def _diverging(partition: Partition, epoch: int, offset: int) -> EpochEndOffset | None:
    """Where the log of a client that has fetched up to `offset` under `epoch` parts from this one (KIP-595).

    Raises:
        KafkaError: OFFSET_OUT_OF_RANGE, nothing is known of that epoch.
    """
    if epoch < 0:
        return None
    found, end = epoch, partition.log.end_offset
    if epoch != partition.leader_epoch:  # which is known before its first batch
        found, end = partition.log.epochs.end_offset(epoch, end)
    if found < 0 or offset < partition.log.start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if found == epoch and end >= offset:
        return None
    return EpochEndOffset(epoch=found, end_offset=end)


def _refused(partition: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=partition, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )


def _news(wanted: Wanted, data: PartitionData) -> bool:
    return bool(
        data.records
        or data.error_code != ErrorCode.NONE
        or wanted.error != ErrorCode.NONE
        or data.high_watermark != wanted.high_watermark
        or data.log_start_offset != wanted.log_start_offset
        or data.diverging_epoch.epoch >= 0
    )
