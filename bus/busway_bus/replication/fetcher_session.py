"""A follower's side of an incremental fetch session with one leader (KIP-227).

Here: what a request says, from what has changed since the last; Kafka's `FetchSessionHandler`.
Not here: the leader's side (`fetch_sessions`), sending (`fetcher`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from busway_bus.replication.fetch_sessions import INITIAL_EPOCH, SESSIONLESS
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

Key = tuple[str, int]
EPOCH_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """Limits of a follower's requests.

    Attributes:
        max_wait_ms, min_bytes: replica.fetch.wait.max.ms, replica.fetch.min.bytes.
        max_bytes: of a response (replica.fetch.response.max.bytes).
        partition_max_bytes: of a partition (replica.fetch.max.bytes).
    """

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024


class FetcherSession:
    """The partitions that a follower fetches from one leader. The cost of a request grows with what has changed."""

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = limits
        self._id = SESSIONLESS
        self._epoch = INITIAL_EPOCH
        self._wanted: dict[Key, tuple[UUID, FetchPartition]] = {}
        self._changed: dict[Key, None] = {}
        self._forgotten: dict[Key, UUID] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def __contains__(self, key: Key) -> bool:
        return key in self._wanted

    @property
    def is_idle(self) -> bool:
        """Whether no partition is fetched."""
        return not self._wanted

    def put(self, key: Key, topic_id: UUID, partition: FetchPartition) -> None:
        """Fetch a partition, or fetch it from another offset."""
        before = self._wanted.get(key)
        if before is not None and before[0] != topic_id:
            self.remove(key)
            before = None
        if before is None or before[1] != partition:
            self._wanted[key] = (topic_id, partition)
            self._changed[key] = None

    def remove(self, key: Key) -> None:
        """Stop to fetch a partition."""
        removed = self._wanted.pop(key, None)
        self._changed.pop(key, None)
        if removed is not None:
            self._forgotten[key] = removed[0]

    def requested(self, key: Key) -> FetchPartition | None:
        wanted = self._wanted.get(key)
        return None if wanted is None else wanted[1]

    def request(self, *, replica_id: int, broker_epoch: int) -> FetchRequest:
        """Build the next request: of all partitions, or of those that changed since the last."""
        full = self._epoch == INITIAL_EPOCH
        topics: dict[UUID, FetchTopic] = {}
        for key in self._wanted if full else self._changed:
            topic_id, partition = self._wanted[key]
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic=key[0], topic_id=topic_id, partitions=[])
            topic.partitions.append(partition)
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=replica_id, replica_epoch=broker_epoch),
            max_wait_ms=self._limits.max_wait_ms,
            min_bytes=self._limits.min_bytes,
            max_bytes=self._limits.max_bytes,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
            forgotten_topics_data=[] if full else _forgotten(self._forgotten, self._wanted),
        )
        self._changed.clear()
        self._forgotten.clear()
        return request

    def answered(self, response: FetchResponse) -> bool:
        """Take over the session; return whether the response has partitions to look at."""
        if response.error_code != ErrorCode.NONE:
            self._restart(response.error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return False
        if self._epoch == INITIAL_EPOCH:
            self._id = response.session_id
            self._epoch = 1 if self._id != SESSIONLESS else INITIAL_EPOCH
        elif response.session_id != self._id:
            self._restart(close=False)
        else:
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        return True

    def failed(self) -> None:
        """No answer came: the leader may have advanced the session or not."""
        self._restart(close=True)

    def _restart(self, close: bool) -> None:
        """Open a new session with the next request, which closes the old one."""
        if not close:
            self._id = SESSIONLESS
        self._epoch = INITIAL_EPOCH


def _forgotten(
    forgotten: Mapping[Key, UUID], wanted: Mapping[Key, tuple[UUID, FetchPartition]]
) -> list[ForgottenTopic]:
    topics: dict[UUID, ForgottenTopic] = {}
    for (name, partition), topic_id in forgotten.items():
        again = wanted.get((name, partition))
        if again is not None and again[0] == topic_id:
            continue  # put back since: the leader updates it
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ForgottenTopic(topic=name, topic_id=topic_id, partitions=[])
        topic.partitions.append(partition)
    return list(topics.values())
