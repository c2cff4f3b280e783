"""Incremental fetch sessions (KIP-227).

Here: sessions, epochs, read order, eviction, the last response of each partition: a response has only changes.
Not here: reading, the clock.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from busway_bus.kernel.limits import FETCH_SESSION_PARTITIONS_MAX
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.fetch import FetchPartition, FetchRequest

SESSIONLESS: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
EVICTION_MS: Final = 120_000
"""Age of sessions for eviction (Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS).

One unused for longer is evicted for any other, one created longer ago for a larger one.
"""


Key = tuple[str, UUID, int]
"""Topic name, topic id and partition. A client sends either name or id."""


def _no_partition() -> None:
    return None


@dataclass(slots=True, eq=False)
class CachedPartition:
    """A partition of a session, with fields of the last response.

    Attributes:
        partition: a weak reference to the one that was read last; it may be deleted since.
    """

    key: Key
    request: FetchPartition
    partition: Callable[[], Any] = _no_partition
    high_watermark: int = -1
    log_start_offset: int = -1
    error: int = 0


@dataclass(slots=True)
class Session:
    """The partitions of one client, in read order.

    Attributes:
        by_id: whether the client sends topic ids.
    """

    id: int
    by_id: bool
    epoch: int = INITIAL_EPOCH
    created_ms: int = 0
    used_ms: int = 0
    partitions: OrderedDict[Key, CachedPartition] = field(default_factory=OrderedDict)

    def gave(self, key: Key) -> None:
        """Move a partition with records to the end, so it does not starve the others."""
        if self.id != SESSIONLESS and key in self.partitions:
            self.partitions.move_to_end(key)


class FetchSessions:
    """Sessions of a node: at most `slots`, with `partitions_max` partitions."""

    def __init__(self, slots: int, partitions_max: int = FETCH_SESSION_PARTITIONS_MAX) -> None:
        self._slots = slots
        self._partitions_max = partitions_max
        self._partitions = 0
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, *, by_id: bool, now_ms: int) -> tuple[Session, bool]:
        """Return the updated session, and whether a full response is due.

        Without room the response is sessionless, as in Kafka.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, or FETCH_SESSION_TOPIC_ID_ERROR if the
                client switched between names and ids.
        """
        if request.session_epoch in {FINAL_EPOCH, INITIAL_EPOCH}:
            if request.session_id:
                self._remove(request.session_id)
            session = Session(SESSIONLESS, by_id)
            _update(session, request)
            if request.session_epoch == INITIAL_EPOCH:
                self._admit(session, now_ms)
            return session, True
        running = self._sessions.get(request.session_id)
        if running is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != running.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if by_id != running.by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._change(running, request)
        if not running.partitions:
            self._remove(running.id)
            return Session(SESSIONLESS, by_id), True
        self._sessions.move_to_end(running.id)
        running.used_ms = now_ms
        running.epoch = 1 if running.epoch == 2**31 - 1 else running.epoch + 1
        return running, False

    def _change(self, session: Session, request: FetchRequest) -> None:
        before = len(session.partitions)
        for forgotten in request.forgotten_topics_data:
            for partition in forgotten.partitions:
                session.partitions.pop((forgotten.topic, forgotten.topic_id, partition), None)
        _update(session, request)
        self._partitions += len(session.partitions) - before
        if self._partitions > self._partitions_max:
            self._remove(session.id)
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            )  # the client opens a new session and gets a sessionless response

    def _admit(self, session: Session, now_ms: int) -> None:
        size = len(session.partitions)
        while len(self._sessions) >= self._slots or self._partitions + size > self._partitions_max:
            if not self._make_room(size, now_ms):
                return
        session.id = self._next_id
        session.epoch = 1
        session.created_ms = session.used_ms = now_ms
        self._next_id = self._next_id % (2**31 - 1) + 1
        self._sessions[session.id] = session
        self._partitions += size

    def _make_room(self, size: int, now_ms: int) -> bool:
        """Evict a session for one of `size` partitions. False if none may be evicted.

        It is the least recently used if idle, else the smallest settled one if smaller than `size`.
        """
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms <= EVICTION_MS:
            settled = (session for session in self._sessions.values() if now_ms - session.created_ms > EVICTION_MS)
            oldest = min(settled, key=lambda session: len(session.partitions), default=None)
            if oldest is None or len(oldest.partitions) >= size:
                return False
        self._remove(oldest.id)
        return True

    def _remove(self, session_id: int) -> None:
        removed = self._sessions.pop(session_id, None)
        if removed is not None:
            self._partitions -= len(removed.partitions)


def _update(session: Session, request: FetchRequest) -> None:
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.topic, topic.topic_id, partition.partition)
            cached = session.partitions.get(key) if session.partitions else None
            if cached is None:
                session.partitions[key] = CachedPartition(key, partition)
            else:
                if partition.current_leader_epoch != cached.request.current_leader_epoch:
                    cached.high_watermark = -1  # the last response may have been ignored: it was for another epoch
                cached.request = partition
