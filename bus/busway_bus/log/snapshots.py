"""When the producers' state of a log is written down between two rolls.

What lives here: how much a start after a kill would read, and which snapshots are superfluous by then. What does not: the state
(`producer_state`), writing it (`flush_point`), and what a snapshot proves (`recovery`).
"""

from collections.abc import Collection

from busway_bus.kernel.limits import RECOVERY_BYTES_MAX, RECOVERY_BYTES_SETTLED


class SnapshotSchedule:
    """Of one log.

    Args:
        covered_bytes: how much of the last segment the newest snapshot covers.
        between: where there is a snapshot that is not at the beginning of a segment.

    Attributes:
        requested: whether the next flush has to write one, however little came since the last.
    """

    __slots__ = ("_between", "_covered_bytes", "requested")

    def __init__(self, covered_bytes: int, between: Collection[int]) -> None:
        self._covered_bytes = covered_bytes
        self._between = tuple(between)
        self.requested = False

    def due(self, active_bytes: int) -> bool:
        """Whether the flush that begins now writes one, the last segment having so many bytes."""
        return self.requested or active_bytes - self._covered_bytes >= RECOVERY_BYTES_MAX

    def settle(self, active_bytes: int) -> None:
        """Somebody looks after the log, now and then: what was appended since is covered soon."""
        self.requested = active_bytes - self._covered_bytes >= RECOVERY_BYTES_SETTLED

    def taken(self, offset: int, active_bytes: int, bases: Collection[int]) -> tuple[int, ...]:
        """One is taken as of the end; answers where those are that it makes superfluous: not those at the `bases` of segments."""
        outdated = tuple(at for at in self._between if at not in bases and at != offset)
        self._between = (offset,)
        self._covered_bytes = active_bytes
        self.requested = False
        return outdated

    def rolled(self) -> None:
        """The last segment is a new one."""
        self._covered_bytes = 0

    def truncated(self, offset: int, active_bytes: int) -> None:
        """The log ends at `offset` now; later snapshots are removed."""
        self._between = tuple(at for at in self._between if at <= offset)
        self._covered_bytes = min(self._covered_bytes, active_bytes)
