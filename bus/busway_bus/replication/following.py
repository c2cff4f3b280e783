"""Next step of a follower, from the leader's answer to its fetch.

Here: truncation by leader epoch (KIP-101, KIP-279, KIP-595), and what an error means; Kafka's `AbstractFetcherThread`.
Not here: requests (`fetcher`, `fetcher_session`), the log (`follower_logs`).
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from busway_bus.log.epochs import LeaderEpochs
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import FetchPartition, PartitionData
from busway_protocol.types import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLog:
    """The log of a follower.

    Attributes:
        leader_epoch: of the partition's newest record in the metadata.
        epochs: of its batches.
    """

    start_offset: int
    end_offset: int
    leader_epoch: int
    epochs: LeaderEpochs


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Append the batches, then take over the leader's offsets; an incomplete last batch is left out."""

    records: Buffer
    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log to `offset` and fetch again. An offset at the end removes only an epoch without records."""

    offset: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Remove all records and begin at `offset`: the leader has deleted what would follow."""

    offset: int


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look up start and end of the leader's log, then see `out_of_range`."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Fetch again after a pause."""

    code: ErrorCode


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the partition's next record: the leader has a newer epoch."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """The log or its leader has changed since the request."""


Step: TypeAlias = Append | Truncate | LookUp | Retry | Wait | Ignore
UNKNOWN: Final = -1
"""No epoch, or no offset."""


def step(log: ReplicaLog, request: FetchPartition, answer: PartitionData) -> Step:
    """Decide what a follower does with the answer to `request`."""
    if request.current_leader_epoch != log.leader_epoch or request.fetch_offset != log.end_offset:
        return Ignore()
    code = answer.error_code
    if code == ErrorCode.NONE:
        diverging = answer.diverging_epoch
        if diverging.epoch >= 0:
            return Truncate(truncation_offset(log, epoch=diverging.epoch, end_offset=diverging.end_offset))
        assert not isinstance(answer.records, list), "records that were received are one buffer"
        return Append(
            records=b"" if answer.records is None else answer.records,
            high_watermark=answer.high_watermark,
            log_start_offset=answer.log_start_offset,
        )
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return LookUp()
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        return Wait()
    return Retry(ErrorCode(code))


def truncation_offset(log: ReplicaLog, *, epoch: int, end_offset: int) -> int:
    """Return the end after a truncation, given the leader's largest epoch up to the last of this log, and its end.

    Without this epoch here the log ends after its largest smaller one, and the next fetch returns the next epoch.
    """
    own_epoch, own_end = log.epochs.end_offset(epoch, log.end_offset)
    if own_epoch == UNKNOWN:
        return min(end_offset, log.end_offset)
    if own_epoch != epoch:
        return min(own_end, log.end_offset)
    return min(own_end, end_offset, log.end_offset)


def out_of_range(log: ReplicaLog, *, leader_start: int, leader_end: int) -> Truncate | Restart | Ignore:
    """Decide what a follower does whose end is outside of the leader's log.

    A leader with an earlier end was elected uncleanly. One with a later start has deleted records. Otherwise its log
    has grown meanwhile, and the follower goes on.
    """
    if leader_end < log.end_offset:
        return Truncate(leader_end)
    if leader_start > log.end_offset:
        return Restart(leader_start)
    return Ignore()
