"""What a flush puts on disk, in the order in which a start after a crash relies on it.

What lives here: one flush of one log, for any thread. What does not: when it is due and whom it is told (`flusher`).
"""

from typing import NamedTuple

from busway_bus.log.producer_entry import ProducersAt
from busway_bus.log.segment import Segment
from busway_bus.log.side_files import SideFiles


class FlushPoint(NamedTuple):
    """What a flush that starts now will have put on disk when it is done: the segments rolled since the last one, each with the
    producers' snapshot as of its end, and the one that is written to. `truncations` is how often the log had been truncated.

    The leader epochs come first, where they are news and a snapshot follows: until then a start learns them from the batches.

    Now and then there is a snapshot for the end of the last segment too: up to there the next start reads nothing again. It takes the
    place of those at `outdated`."""

    kept: SideFiles
    rolled: tuple[tuple[Segment, ProducersAt], ...]
    active: Segment
    end_offset: int
    epochs: bytes | None
    truncations: int
    snapshot: ProducersAt | None = None
    outdated: tuple[int, ...] = ()

    def sync(self) -> None:
        """Wait for the disk, in any thread; a log that was closed meanwhile (its topic is gone) needs no sync.

        A snapshot is written only when everything before it is on disk, so it proves that, epochs and indexes included (see
        `recovery`).

        Raises:
            OSError: the disk failed, which is final.
        """
        try:
            if self.epochs is not None:
                self.kept.write_epochs(self.epochs)
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
