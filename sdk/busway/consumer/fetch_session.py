"""A consumer's incremental fetch session with one broker (KIP-227).

Here: session id and epoch, the partitions that a request has to name, checks of responses.
Not here: sending (`fetch_exchange`), the broker's side (`busway_bus.replication.fetch_sessions`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from busway.consumer.subscription import FetchPosition
from busway.errors import BrokerError
from busway.types import TopicPartition
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.fetch import FetchResponse, ForgottenTopic, PartitionData
from busway_protocol.types import ZERO_UUID

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
"""Of a request with all partitions, which closes the session of its id and begins another."""
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1

_Sent = tuple[int, int, int, int, UUID | None]
"""Generation of the position, fetch offset, last fetched epoch, leader epoch, topic id."""


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The part of a Fetch request that depends on the session.

    Attributes:
        positions: to name; in an incremental request those that changed.
        forgotten: to remove from the session.
        by_id: all topics have ids.
    """

    session_id: int
    epoch: int
    positions: Sequence[FetchPosition]
    forgotten: list[ForgottenTopic]
    by_id: bool


class FetchSession:
    """Call `request`, and with its outcome `pairs` or `failed`, before the next request."""

    __slots__ = ("_by_id", "_epoch", "_id", "_sent", "_topics")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._by_id = False
        self._sent: dict[TopicPartition, _Sent] = {}
        self._topics: dict[UUID, str] = {}

    @property
    def id(self) -> int:
        return self._id

    def request(self, positions: Sequence[FetchPosition]) -> SessionRequest:
        """Return what to send to fetch exactly these positions."""
        by_id = all(position.topic_id for position in positions)
        if by_id != self._by_id:  # brokers refuse a session with names and ids
            self._by_id, self._epoch = by_id, INITIAL_EPOCH
        before, sent, changed = self._sent, {}, []
        is_full = self._epoch == INITIAL_EPOCH
        for position in positions:
            partition = position.partition
            state = (
                position.number,
                position.fetch_position,
                position.fetched_epoch,
                position.leader_epoch,
                position.topic_id,
            )
            sent[partition] = state
            if is_full or before.get(partition) != state:
                changed.append(position)
        self._sent = sent
        if changed:
            self._topics.update((each.topic_id, each.partition.topic) for each in changed if each.topic_id)
        forgotten = [] if is_full else self._forgotten(before, sent)
        return SessionRequest(self._id, self._epoch, changed, forgotten, by_id)

    def _forgotten(
        self, before: dict[TopicPartition, _Sent], sent: dict[TopicPartition, _Sent]
    ) -> list[ForgottenTopic]:
        topics: dict[tuple[str, UUID], ForgottenTopic] = {}
        for partition, (*_, topic_id) in before.items():
            now = sent.get(partition)
            if now is not None and now[-1] == topic_id:
                continue
            name, partition_index = partition
            key = name, topic_id or ZERO_UUID
            topic = topics.setdefault(key, ForgottenTopic(topic=name, topic_id=key[1], partitions=[]))
            topic.partitions.append(partition_index)
        return list(topics.values())

    def is_current(self, position: FetchPosition) -> bool:
        """Return whether the last request named this position as it is now: no seek since."""
        sent = self._sent.get(position.partition)
        return sent is not None and sent[:2] == (position.number, position.fetch_position)

    def pairs(self, response: FetchResponse) -> list[tuple[TopicPartition, PartitionData]]:
        """Process a response and return its partitions.

        None if it does not fit the session, as in Kafka's FetchSessionHandler: the next request names all partitions.

        Raises:
            BrokerError: the broker refused the request.
        """
        code = error_for(response.error_code)
        if code is not ErrorCode.NONE:
            self._restart(keep=code is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            raise BrokerError(code, "fetching")
        pairs = [
            (TopicPartition(topic.topic or self._topics.get(topic.topic_id, ""), data.partition_index), data)
            for topic in response.responses
            for data in topic.partitions
        ]
        is_full = self._epoch == INITIAL_EPOCH
        if not all(partition in self._sent for partition, _ in pairs) or (is_full and len(pairs) != len(self._sent)):
            self._restart(keep=not is_full)
            return []
        if response.session_id == NO_SESSION:
            self._restart(keep=False)
        elif is_full:
            self._id, self._epoch = response.session_id, 1
        else:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        return pairs

    def failed(self) -> None:
        """Begin another session after a request without a response."""
        self._restart(keep=True)

    def _restart(self, *, keep: bool) -> None:
        self._id, self._epoch = self._id if keep else NO_SESSION, INITIAL_EPOCH
        self._topics.clear()
