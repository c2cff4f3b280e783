"""The interface between the metadata's decisions and the commit of their records.

What lives here: both sides of it. What does not: the writer of a single voter (`quorum.alone`) and of one among several (`quorum.driver`), and the
meaning of the records (`quorum.metadata_log`).
"""

from typing import Protocol

from busway_protocol.errors import KafkaError
from busway_protocol.types import Buffer


class Owner(Protocol):
    """The owner of the records. The writer calls its methods within its own steps: they propose nothing before they return."""

    def leads(self, first_offset: int, end_offset: int, epoch: int) -> None:
        """Handle the start of leadership: the epoch begins at `first_offset`; control records, which it did not propose, end at `end_offset`."""

    def lost(self) -> None:
        """Handle the end of leadership: the outcome of uncommitted proposals is unknown."""

    def withdrawn(self, offset: int, problem: KafkaError) -> None:
        """Handle proposals from `offset` on that could not be written, and will not be."""

    def committed(self, offset: int) -> None:
        """Handle a commit of all records below `offset`; it never falls."""


class Writer(Protocol):
    """Commits batches in order.

    Attributes:
        leading: whether this node may propose.
        leader_id: the node that may, -1 if unknown.
        end_offset: of the next proposal.
        keeps_all: whether the log must keep its beginning, although snapshots cover it.
    """

    @property
    def leading(self) -> bool:
        """See above."""

    @property
    def leader_id(self) -> int:
        """See above."""

    @property
    def end_offset(self) -> int:
        """See above."""

    @property
    def keeps_all(self) -> bool:
        """See above."""

    def begin(self, owner: Owner) -> None:
        """Start, and notify `owner` of the outcome of its proposals."""

    def propose(self, batch: Buffer) -> int:
        """Append a batch; return the offset behind it.

        Raises:
            KafkaError: NOT_CONTROLLER, REQUEST_TIMED_OUT if too many proposals wait, KAFKA_STORAGE_ERROR if it cannot be written: it is not in the
                log then.
        """

    def check_disk(self) -> None:
        """Check that no sync has failed; after one nothing more becomes durable.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
