"""One flush of a log, in the order required by recovery.

Here: the flush, for any thread.
Not here: its time and waiters (`flusher`).
"""

from typing import NamedTuple

from busway_bus.log.producer_entry import ProducersAt
from busway_bus.log.segment import Segment
from busway_bus.log.side_files import SideFiles


class FlushPoint(NamedTuple):
    """What one flush makes durable.

    Attributes:
        rolled: segments rolled since the last flush, with the producer snapshot of their end.
        active: the segment for appends, up to `end_offset`.
        epochs: leader epochs, written first if they changed and a snapshot follows; until then a start reads them from
            the batches.
        truncations: of the log so far.
        snapshot: of the producers at `end_offset`, if due, instead of those at `outdated`.
    """

    kept: SideFiles
    rolled: tuple[tuple[Segment, ProducersAt], ...]
    active: Segment
    end_offset: int
    epochs: bytes | None
    truncations: int
    snapshot: ProducersAt | None = None
    outdated: tuple[int, ...] = ()

    def sync(self) -> None:
        """Wait for the disk, in any thread. Errors of a log closed meanwhile are ignored.

        The snapshot is last: it proves that everything before it is on disk, epochs and indexes included (see
        `recovery`). An OSError is final.
        """
        try:
            if self.epochs is not None:
                self.kept.write_epochs(self.epochs, self.truncations)
            for segment, snapshot in self.rolled:
                segment.sync()
                segment.sync_indexes()
                self.kept.write_snapshot(segment.next_offset, snapshot.encode(), self.truncations)
            self.active.sync()
            if self.snapshot is not None:
                self.active.sync_indexes()
                self.kept.write_snapshot(
                    self.end_offset, self.snapshot.encode(), self.truncations, instead_of=self.outdated
                )
        except OSError:
            if not self.kept.closed:
                raise
