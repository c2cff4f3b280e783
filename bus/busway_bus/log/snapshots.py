"""Schedule of producer snapshots between two rolls of a log.

Here: when a snapshot is due, by the bytes to recover, and which are superfluous.
Not here: writing (`flush_point`), what it proves (`recovery`).
"""

from collections.abc import Collection

from busway_bus.kernel.limits import RECOVERY_BYTES_MAX, RECOVERY_BYTES_SETTLED


class SnapshotSchedule:
    """Snapshot schedule of one log.

    Args:
        covered_bytes: of the last segment, by the newest snapshot.
        between: offsets of snapshots not at the start of a segment.

    Attributes:
        requested: the next flush must write one.
    """

    __slots__ = ("_between", "_covered_bytes", "requested")

    def __init__(self, covered_bytes: int, between: Collection[int]) -> None:
        self._covered_bytes = covered_bytes
        self._between = tuple(between)
        self.requested = False

    def due(self, active_bytes: int) -> bool:
        return self.requested or active_bytes - self._covered_bytes >= RECOVERY_BYTES_MAX

    def settle(self, active_bytes: int) -> None:
        """Request a snapshot from `RECOVERY_BYTES_SETTLED` uncovered bytes, periodically."""
        self.requested = active_bytes - self._covered_bytes >= RECOVERY_BYTES_SETTLED

    def taken(self, offset: int, active_bytes: int, bases: Collection[int]) -> tuple[int, ...]:
        """Note a snapshot. Return superfluous offsets, without those at segment `bases`."""
        outdated = tuple(at for at in self._between if at not in bases and at != offset)
        self._between = (offset,)
        self._covered_bytes = active_bytes
        self.requested = False
        return outdated

    def rolled(self) -> None:
        self._covered_bytes = 0

    def truncated(self, offset: int, active_bytes: int) -> None:
        self._between = tuple(at for at in self._between if at <= offset)
        self._covered_bytes = min(self._covered_bytes, active_bytes)
