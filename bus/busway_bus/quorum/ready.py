"""What goes into the quorum's core, and what comes out of it.

What lives here: messages in, effects out, as frozen values. What does not: anything that decides.

What the driver does with a `Ready`: it writes `save`, then `append`, in the order of the numbers and none before the one before it; when both
are on disk it steps the core with `Persisted`. It sends what is in `send` at once: the core has kept it back until all was on disk that it
rests on. Where a `Reply` has a `read`, the records are read before the next `Ready` is written.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from busway_bus.kernel.decision import Waiter
from busway_bus.quorum.states import Election
from busway_protocol.messages.fetch import FetchRequest, FetchResponse
from busway_protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from busway_protocol.types import Buffer

QuorumRequest: TypeAlias = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest
QuorumResponse: TypeAlias = VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse | FetchResponse


class NotLeading(Exception):
    """Records were proposed to a node that does not lead; `leader_id` does, or -1: nobody is known to."""

    def __init__(self, leader_id: int) -> None:
        super().__init__(
            f"node {leader_id} leads the metadata log" if leader_id >= 0 else "nobody leads the metadata log"
        )
        self.leader_id = leader_id


class TooMuchUndecided(Exception):
    """PROPOSALS_MAX batches wait for a majority; propose again when some of them are committed."""


class CommittedRecordsLost(Exception):
    """A leader does not have what a majority had: voters have lost their disks. The node stops, so that its own copy stays."""


# Into the core


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Somebody asks; `waiter` comes back with the `Reply`."""

    waiter: Waiter
    body: QuorumRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a `Send`; None where none came, because the connection ended or was refused."""

    correlation: int
    body: QuorumResponse | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Persisted:
    """What the `Ready` with this number saves and appends is on disk, and all before it."""

    number: int


Message: TypeAlias = Request | Answer | Persisted

# Out of it


class Read(NamedTuple):
    """Batches of the log that an answer carries: from `offset` on, one at least, no more than `bytes_max`."""

    offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A request to another node, in the latest version that both know. One that does not fit into it, as a pre-vote into version 1, is
    answered by the driver with UNSUPPORTED_VERSION, as by Kafka's client."""

    to: int
    correlation: int
    body: QuorumRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a `Request`."""

    waiter: Waiter
    body: QuorumResponse
    read: Read | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWrite:
    """A change of the log: cut off what is from `truncate_to` on, then put the batches at the end."""

    truncate_to: int | None = None
    batches: tuple[Buffer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A batch that was proposed, and where it is in the log as long as its leader leads."""

    epoch: int
    first_offset: int
    last_offset: int
    waiter: Waiter = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What is to be done.

    Attributes:
        number: to name in `Persisted` where there is something to write.
        save: the election, for the file `quorum-state`.
        append: changes of the log.
        send: requests and answers whose time has come.
        apply: the new high watermark, all before which is to be applied; None where it has not moved. It is on a majority's disks; on a leader's own
            it may still be on its way.
        committed: proposals before it, in their order.
        discarded: proposals of which nobody knows whether they will be committed: this node leads no more.
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
        """Whether the driver has to say `Persisted`."""
        return self.save is not None or bool(self.append)
