"""A share session with one leader: what the leader believes this member wants of it (KIP-932).

What lives here: the session's epoch, its partitions, and the requests that change them; pure. What does not: sending (`leader`).

Every request moves the epoch on. An epoch that the leader does not expect, or a connection that ends, ends the session, and all that was
acquired in it is released.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from busway.options import ShareConsumerOptions
from busway.share.held import Told
from busway_protocol.messages.share_groups import (
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)

NEW: Final = 0
_FINAL: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
Id = tuple[UUID, int]
"""A partition by its topic's id and its number."""


class ShareSession:
    """One member's session with one leader."""

    def __init__(self, options: ShareConsumerOptions, member_id: str) -> None:
        self._options = options
        self._member_id = member_id
        self.epoch = NEW
        self.partitions: set[Id] = set()

    @property
    def is_open(self) -> bool:
        """Whether the leader has it."""
        return self.epoch != NEW

    def went_on(self) -> None:
        """The leader took a request."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def ended(self) -> None:
        """The leader has it no more; the next fetch opens another one."""
        self.epoch = NEW
        self.partitions.clear()

    def fetch(self, wanted: Iterable[Id], told: Mapping[Id, Told], limit: int) -> ShareFetchRequest:
        """A request for records of exactly these partitions, at most `limit` of them."""
        options = self._options
        wanted_ids = set(wanted)
        assert told.keys() <= wanted_ids, "what is told about others would add them to the session"
        added = sorted(wanted_ids - self.partitions)
        forgotten = sorted(self.partitions - wanted_ids)
        self.partitions = wanted_ids
        topics: dict[UUID, FetchTopic] = {}
        for topic_id, number in sorted({*added, *told}):
            topic = topics.setdefault(topic_id, FetchTopic(topic_id=topic_id, partitions=[]))
            about = told.get((topic_id, number))
            batches = about.batches() if about is not None else []
            topic.partitions.append(FetchPartition(partition_index=number, acknowledgement_batches=batches))
        gone: dict[UUID, ForgottenTopic] = {}
        for topic_id, number in forgotten:
            gone.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(number)
        return ShareFetchRequest(
            group_id=options.group_id,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=options.fetch_max_wait_ms,
            min_bytes=options.fetch_min_bytes,
            max_bytes=options.fetch_max_bytes,
            max_records=limit,
            batch_size=limit,
            share_acquire_mode=int(options.acquire_mode == "record_limit"),
            topics=list(topics.values()),
            forgotten_topics_data=list(gone.values()),
        )

    def acknowledge(self, told: Mapping[Id, Told], *, final: bool = False) -> ShareAcknowledgeRequest:
        """A request that tells what became of records; a `final` one ends the session and releases what is left."""
        topics: dict[UUID, AcknowledgeTopic] = {}
        for topic_id, number in sorted(told):
            topic = topics.setdefault(topic_id, AcknowledgeTopic(topic_id=topic_id, partitions=[]))
            batches = told[topic_id, number].batches()
            topic.partitions.append(AcknowledgePartition(partition_index=number, acknowledgement_batches=batches))
        return ShareAcknowledgeRequest(
            group_id=self._options.group_id,
            member_id=self._member_id,
            share_session_epoch=_FINAL if final else self.epoch,
            is_renew_ack=any(one.renews for one in told.values()),
            topics=list(topics.values()),
        )
