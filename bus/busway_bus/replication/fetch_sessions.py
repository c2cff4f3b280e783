"""Fetch sessions: a client names its partitions once and then only what changes (KIP-227).

What lives here: the sessions, their epochs and their limit, as plain state. What does not: reading, or the clock. A session
remembers what the client last heard of each partition, so that an answer names only what is new.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.fetch import FetchPartition, FetchRequest

SESSIONLESS: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0


@dataclass(slots=True)
class Wanted:
    """One partition of a session; the last three are what the client heard last."""

    request: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    error: int = 0


Key = tuple[str, UUID, int]


@dataclass(slots=True)
class Session:
    """The partitions of one client in the order in which they are read."""

    id: int
    epoch: int = INITIAL_EPOCH
    partitions: OrderedDict[Key, Wanted] = field(default_factory=OrderedDict)


class FetchSessions:
    """All sessions of a node, at most `slots`; the one unused for longest makes room."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest) -> tuple[Session, bool]:
        """The session that a request belongs to, updated, and whether its answer must name every partition.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH.
        """
        if request.session_epoch in {FINAL_EPOCH, INITIAL_EPOCH}:
            if request.session_id:
                self._sessions.pop(request.session_id, None)
            session = Session(SESSIONLESS)
            _update(session, request)
            if request.session_epoch == INITIAL_EPOCH and self._slots > 0:
                self._admit(session)
            return session, True
        found = self._sessions.get(request.session_id)
        if found is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != found.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self._sessions.move_to_end(found.id)
        found.epoch = 1 if found.epoch == 2**31 - 1 else found.epoch + 1
        for forgotten in request.forgotten_topics_data:
            for number in forgotten.partitions:
                found.partitions.pop((forgotten.topic, forgotten.topic_id, number), None)
        _update(found, request)
        return found, False

    def _admit(self, session: Session) -> None:
        while len(self._sessions) >= self._slots:
            self._sessions.popitem(last=False)
        session.id = self._next_id
        session.epoch = 1
        self._next_id = self._next_id % (2**31 - 1) + 1
        self._sessions[session.id] = session


def _update(session: Session, request: FetchRequest) -> None:
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.topic, topic.topic_id, partition.partition)
            known = session.partitions.get(key)
            if known is None:
                session.partitions[key] = Wanted(partition)
            else:
                known.request = partition
