"""The interface between the metadata's decisions and the commit of their records.

Here: both sides.
Not here: the writers (`quorum.single_voter_writer`, `quorum.driver`), the records (`quorum.metadata_log`).
"""

from typing import Protocol

from busway_bus.metadata.snapshot import SnapshotId
from busway_protocol.errors import KafkaError
from busway_protocol.types import Buffer


class Owner(Protocol):
    """The owner of the records. Methods run within the writer's steps: they must propose nothing."""

    def leads(self, first_offset: int, end_offset: int, epoch: int) -> None:
        """Handle the start of leadership at `first_offset`.

        Control records, which the owner did not propose, end at `end_offset`.
        """

    def lost(self) -> None:
        """Handle the end of leadership; uncommitted proposals are undecided."""

    def withdrawn(self, offset: int, problem: KafkaError) -> None:
        """Handle proposals from `offset` on that were dropped."""

    def loaded(self, snapshot: SnapshotId) -> None:
        """Handle a snapshot of the leader that has replaced the log."""

    def committed(self, offset: int) -> None:
        """Handle a commit of all records below `offset`, which never falls."""


class Writer(Protocol):
    """Commits batches in order."""

    @property
    def leading(self) -> bool:
        """Whether this node may propose."""

    @property
    def leader_id(self) -> int:
        """The node that may, else -1."""

    @property
    def end_offset(self) -> int:
        """Offset of the next proposal."""

    def snapshotted(self, start_offset: int) -> None:
        """Handle a new or deleted snapshot, and the log's start offset."""

    def begin(self, owner: Owner) -> None:
        """Start, with `owner` of the proposals."""

    def propose(self, batch: Buffer) -> int:
        """Append a batch; return the offset behind it.

        Raises:
            KafkaError: nothing is appended: NOT_CONTROLLER, REQUEST_TIMED_OUT if too many proposals wait,
            KAFKA_STORAGE_ERROR.
        """

    def check_disk(self) -> None:
        """Raise KAFKA_STORAGE_ERROR after a failed sync: nothing more becomes durable."""
