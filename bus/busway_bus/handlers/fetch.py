"""Fetch (key 1, versions 4-18): read batches, waiting for them if need be.

Versions: 7 has sessions (KIP-227), 9 checks the leader epoch (KIP-320), 11 names the rack, 12 is flexible and tells a diverging
epoch, 13 names topics by id (KIP-516), 15 moves the replica's state, 18 tells a follower's high watermark.
Behaviour: consumers read below the high watermark; the first batch comes even when it is over the limit (KIP-74); answers when
min_bytes are there or max_wait_ms is over. A batch damaged on disk is CORRUPT_MESSAGE for its own partition.
*Not supported*: followers, which one node does not have.
"""

import asyncio
from collections.abc import Awaitable
from uuid import UUID

from busway_bus.handlers.context import PeerGone, RequestContext
from busway_bus.replication.fetch_sessions import SESSIONLESS, Key, Session, Wanted
from busway_bus.replication.manager import Wakeup
from busway_bus.replication.partition import Partition
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
TOPIC_IDS_SINCE = 13
CONSUMER = -1


def handle(request: FetchRequest, context: RequestContext) -> FetchResponse | Awaitable[FetchResponse]:
    """Answer at once when there is enough, otherwise wait."""
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, responses=[])
    try:
        session, full = context.node.sessions.open(request)
    except KafkaError as problem:
        return FetchResponse(error_code=problem.code, responses=[])
    if context.peer.gone:
        raise PeerGone  # reading has no other effect than its answer
    round_ = _Round(request, context, session, full)
    answers = round_.read()
    if round_.enough(answers) or request.max_wait_ms <= 0:
        return round_.response(answers)
    return round_.wait(answers)


class _Round:
    """One request's reading, repeated until there is enough."""

    def __init__(self, request: FetchRequest, context: RequestContext, session: Session, full: bool) -> None:
        self._request = request
        self._context = context
        self._session = session
        self._full = full
        self._led: list[Partition] = []
        self._failed = False
        self._bytes = 0

    def enough(self, answers: object) -> bool:
        """Whether the answer should go out now."""
        return self._bytes >= self._request.min_bytes or self._failed or not self._led

    async def wait(self, answers: list[tuple[Key, Wanted, PartitionData]]) -> FetchResponse:
        """Read again whenever a partition grows, until there is enough or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._request.max_wait_ms / 1000
        while True:
            wakeup = Wakeup(self._led)
            self._context.peer.waits(wakeup.future)
            try:
                fired = await wakeup.wait(max(0.0, deadline - loop.time()))
            finally:
                wakeup.close()
            answers = self.read()
            if not fired or self.enough(answers):
                return self.response(answers)

    def read(self) -> list[tuple[Key, Wanted, PartitionData]]:
        """Read every partition of the session once, within the limits."""
        self._led = []
        self._failed = False
        self._bytes = 0
        left = min(self._request.max_bytes, self._context.node.config.get("fetch.max.bytes"))
        answers = []
        for key, wanted in self._session.partitions.items():
            data = self._read_one(key, wanted, max(left, 0))
            size = len(data.records) if isinstance(data.records, bytes) else 0
            left -= size
            self._bytes += size
            self._failed |= data.error_code != ErrorCode.NONE
            answers.append((key, wanted, data))
        return answers

    def _read_one(self, key: Key, wanted: Wanted, left: int) -> PartitionData:
        request = wanted.request
        try:
            partition = self._find(key)
            partition.check_epoch(request.current_leader_epoch)
            self._led.append(partition)
            return self._read_led(partition, wanted, left)
        except KafkaError as problem:
            return _refused(request.partition, problem.code)

    def _read_led(self, partition: Partition, wanted: Wanted, left: int) -> PartitionData:
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
        diverging = self._diverging(partition, request.last_fetched_epoch, request.fetch_offset)
        if diverging is not None:
            data.diverging_epoch = diverging
            return data
        try:
            data.records = partition.log.read(
                request.fetch_offset,
                min(left, request.partition_max_bytes),
                up_to=high_watermark,
                min_one=self._bytes == 0,
            )
        except (ProtocolError, OSError) as problem:
            return _refused(request.partition, partition.damaged(problem))
        return data

    def _find(self, key: Key) -> Partition:
        topic, topic_id, number = key
        replicas = self._context.node.replicas
        name: str | None = topic
        if self._context.api_version >= TOPIC_IDS_SINCE:
            name = replicas.name_of(topic_id)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return replicas.find(name or "", number)

    @staticmethod
    def _diverging(partition: Partition, epoch: int, offset: int) -> EpochEndOffset | None:
        if epoch < 0:
            return None
        found, end = partition.log.epochs.end_offset(epoch, partition.log.end_offset)
        if found < 0 or (found == epoch and end >= offset):
            return None
        return EpochEndOffset(epoch=found, end_offset=end)

    def response(self, answers: list[tuple[Key, Wanted, PartitionData]]) -> FetchResponse:
        """The answer: in a running session only what has changed for the client."""
        topics: dict[tuple[str, UUID], FetchableTopicResponse] = {}
        for (name, topic_id, _), wanted, data in answers:
            if not self._full and not _news(wanted, data):
                continue
            wanted.high_watermark, wanted.log_start_offset = data.high_watermark, data.log_start_offset
            wanted.error = data.error_code
            topic = topics.get((name, topic_id))
            if topic is None:
                topic = FetchableTopicResponse(topic=name, topic_id=topic_id or ZERO_UUID, partitions=[])
                topics[name, topic_id] = topic
            topic.partitions.append(data)
        return FetchResponse(session_id=self._session.id or SESSIONLESS, responses=list(topics.values()))


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
