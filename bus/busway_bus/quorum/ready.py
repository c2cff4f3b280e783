"""Inputs and outputs of the quorum's core.

Here: messages in, effects out, as frozen values.
Not here: any decision.

The driver writes `save`, then `append`, in the order of the numbers, each after the one before it. When both are on
disk it steps the core with `Persisted`. It sends `send` at once: the core holds messages until all that they rest on is
on disk. A `Reply` with a `Read` is completed before the next `Ready` is written; a snapshot's file does not change.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from busway_bus.kernel.decision import Waiter
from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.states import Election
from busway_protocol.messages.fetch import FetchRequest, FetchResponse
from busway_protocol.messages.metadata_snapshots import FetchSnapshotRequest, FetchSnapshotResponse
from busway_protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from busway_protocol.types import Buffer

QuorumRequest: TypeAlias = (
    VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest | FetchSnapshotRequest
)
QuorumResponse: TypeAlias = (
    VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse | FetchResponse | FetchSnapshotResponse
)


class Refused(Enum):
    """Instead of a response: the node refuses connections."""

    REFUSED = "refused"


class NotLeading(Exception):
    """Records were proposed to a node that does not lead.

    `leader_id`: -1 if unknown.
    """

    def __init__(self, leader_id: int) -> None:
        super().__init__(
            f"node {leader_id} leads the metadata log" if leader_id >= 0 else "the metadata log has no leader"
        )
        self.leader_id = leader_id


class TooManyProposals(Exception):
    """PROPOSALS_MAX batches wait for a majority; propose again after commits."""


class CommittedRecordsLost(Exception):
    """A leader lacks committed records: voters have lost their disks.

    The node stops, so that its copy survives.
    """


# Into the core


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request of another node; `waiter` is returned with the `Reply`."""

    waiter: Waiter
    body: QuorumRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The response to a `Send`; None without a connection.

    `refused`: the node's port is closed, so its process is gone.
    """

    correlation: int
    body: QuorumResponse | None
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Persisted:
    """Everything up to the `Ready` with this number is on disk."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshotted:
    """The complete snapshots on disk with their sizes in bytes, and the log's start."""

    snapshots: Mapping[SnapshotId, int]
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Downloaded:
    """A downloaded snapshot is on disk, and was checked; `number` is that of its parts."""

    snapshot: SnapshotId
    number: int
    intact: bool


Message: TypeAlias = Request | Answer | Persisted | Snapshotted | Downloaded

# Out of the core


class Read(NamedTuple):
    """Batches of a response: from `offset`, at least one, at most `bytes_max`."""

    offset: int
    bytes_max: int


class ReadSnapshot(NamedTuple):
    """Bytes of a response: at most `bytes_max` of a snapshot's file."""

    snapshot: SnapshotId
    position: int
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A request to another node, in the latest version that both support.

    If that version cannot carry it, such as a pre-vote in version 1, the driver answers UNSUPPORTED_VERSION, as Kafka's
    client.
    """

    to: int
    correlation: int
    body: QuorumRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    waiter: Waiter
    body: QuorumResponse
    read: Read | ReadSnapshot | None = None


class SnapshotPart(NamedTuple):
    """Bytes of a downloaded snapshot, from `position` on.

    After the `last` the driver checks the file, and steps the core with `Downloaded`.
    """

    snapshot: SnapshotId
    number: int
    position: int
    content: Buffer
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWrite:
    """A change of the log: truncate to `truncate_to`, or append the batches.

    Attributes:
        part: a part of a download, instead of a change.
        install: the checked download replaces all records; the log begins at its offset.
    """

    truncate_to: int | None = None
    batches: tuple[Buffer, ...] = ()
    part: SnapshotPart | None = None
    install: SnapshotId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A proposed batch and its offsets, valid while its leader leads."""

    epoch: int
    first_offset: int
    last_offset: int
    waiter: Waiter = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Effects for the driver to carry out.

    Attributes:
        number: to name in `Persisted` if there is something to write.
        save: for the file `quorum-state`.
        apply: the new high watermark; None if unchanged. Records below it are on a majority's disks, perhaps not yet on
            a leader's own.
        committed: proposals below it, in order.
        discarded: proposals whose outcome is unknown: this node no longer leads.
    """

    number: int
    save: Election | None = None
    append: tuple[LogWrite, ...] = ()
    send: tuple[Send | Reply, ...] = ()
    apply: int | None = None
    committed: tuple[Proposal, ...] = ()
    discarded: tuple[Proposal, ...] = ()

    @property
    def writes(self) -> bool:
        """Whether the driver must step the core with `Persisted`."""
        return self.save is not None or bool(self.append)
