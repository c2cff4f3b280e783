"""A share session with one leader: the leader's view of this member (KIP-932).

Not here: sending (`leader`).

Every request increments the epoch. An unexpected epoch, or the end of the connection, ends the session and releases its
acquired records.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from busway.options import ShareConsumerOptions
from busway.share.held import AcknowledgementSet
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


class ShareSession:
    def __init__(self, options: ShareConsumerOptions, member_id: str) -> None:
        self._options = options
        self._member_id = member_id
        self.epoch: int = NEW
        self.partitions: set[Id] = set()

    @property
    def is_open(self) -> bool:
        return self.epoch != NEW

    def advance_epoch(self) -> None:
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def ended(self) -> None:
        self.epoch = NEW
        self.partitions.clear()

    def fetch(self, wanted: Iterable[Id], pending: Mapping[Id, AcknowledgementSet], limit: int) -> ShareFetchRequest:
        options = self._options
        wanted_ids = set(wanted)
        assert pending.keys() <= wanted_ids, "acknowledgements of other partitions would add them to the session"
        added = sorted(wanted_ids - self.partitions)
        forgotten = sorted(self.partitions - wanted_ids)
        self.partitions = wanted_ids
        topics: dict[UUID, FetchTopic] = {}
        for topic_id, partition_index in sorted({*added, *pending}):
            topic = topics.setdefault(topic_id, FetchTopic(topic_id=topic_id, partitions=[]))
            about = pending.get((topic_id, partition_index))
            batches = about.batches() if about is not None else []
            topic.partitions.append(FetchPartition(partition_index=partition_index, acknowledgement_batches=batches))
        gone: dict[UUID, ForgottenTopic] = {}
        for topic_id, partition_index in forgotten:
            gone.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(
                partition_index
            )
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

    def acknowledge(self, pending: Mapping[Id, AcknowledgementSet], *, final: bool = False) -> ShareAcknowledgeRequest:
        """Build an acknowledgement; a `final` one ends the session and releases what is left."""
        topics: dict[UUID, AcknowledgeTopic] = {}
        for topic_id, partition_index in sorted(pending):
            topic = topics.setdefault(topic_id, AcknowledgeTopic(topic_id=topic_id, partitions=[]))
            batches = pending[topic_id, partition_index].batches()
            topic.partitions.append(
                AcknowledgePartition(partition_index=partition_index, acknowledgement_batches=batches)
            )
        return ShareAcknowledgeRequest(
            group_id=self._options.group_id,
            member_id=self._member_id,
            share_session_epoch=_FINAL if final else self.epoch,
            is_renew_ack=any(acknowledgements.renews for acknowledgements in pending.values()),
            topics=list(topics.values()),
        )
