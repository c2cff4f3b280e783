"""The interface between who decides on the metadata and who has the records committed.

What lives here: both sides of it. What does not: the writer of a node that is alone (`quorum.alone`) and of one among several voters
(`quorum.driver`), and what the records say (`quorum.metadata_log`).
"""

from typing import Protocol

from busway_protocol.errors import KafkaError
from busway_protocol.types import Buffer


class Owner(Protocol):
    """Whose records they are. It begins nothing with the writer before it returns."""

    def leads(self, first_offset: int, end_offset: int, epoch: int) -> None:
        """This node leads: its epoch begins at `first_offset`; before `end_offset` are control records, which it did not propose."""

    def lost(self) -> None:
        """It leads no more: what it proposed and was not told to be committed, nobody knows of."""

    def withdrawn(self, offset: int, problem: KafkaError) -> None:
        """What was proposed from `offset` on could not be written, and will not be."""

    def committed(self, offset: int) -> None:
        """All before this offset is committed; it never falls."""


class Writer(Protocol):
    """Has batches committed, in their order.

    Attributes:
        leading: whether this node may propose.
        leader_id: who may, -1 where that is not known.
        end_offset: that the next proposal gets.
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
        """Take part from now on, and tell `owner` what becomes of what it proposes."""

    def propose(self, batch: Buffer) -> int:
        """Put a batch at the end of the log; answers the offset behind it.

        Raises:
            KafkaError: NOT_CONTROLLER, REQUEST_TIMED_OUT where too much waits, KAFKA_STORAGE_ERROR where it cannot be written: it is not in
                the log then.
        """

    def check_disk(self) -> None:
        """Refuse where a sync has failed: nothing is made durable any more.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
