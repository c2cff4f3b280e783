"""Heartbeats of brokers: the soft state of the active controller, and a broker's next state.

Here: sessions and reported offsets, in memory only; the rules of Kafka's `BrokerHeartbeatManager`. Whether a broker is
fenced or shuts down is read from the image, so that a decision which is not committed leaves nothing behind.
Not here: the records of a new state (`brokers`). A new leader knows no heartbeats: every unfenced broker's session
begins at its first check.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from busway_bus.metadata.image import BrokerImage, ClusterImage

CHECKS_PER_SESSION: Final = 8
"""Checks for stale brokers in a session timeout, as in Kafka."""


class BrokerState(Enum):
    """The state of a broker, as it follows from a heartbeat."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def fenced(self) -> bool:
        return self in {BrokerState.FENCED, BrokerState.SHUTDOWN_NOW}


@dataclass(slots=True)
class _Reported:
    """What a broker reported in one epoch.

    Attributes:
        contact_ms: of its last heartbeat, or of a new leader's first check; None if its session ended.
        sent_heartbeat: whether it sent one to this leader.
        metadata_offset: its last applied record; -1 if unknown.
        shutdown_offset: the offset that all active brokers must reach before it may stop; None if it does not stop.
    """

    epoch: int
    contact_ms: int | None
    sent_heartbeat: bool = False
    metadata_offset: int = -1
    shutdown_offset: int | None = None


def check_interval_ms(session_timeout_ms: int) -> int:
    return max(1, session_timeout_ms // CHECKS_PER_SESSION)


class BrokerHeartbeats:
    """Sessions of brokers at the active controller; times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._reported: dict[int, _Reported] = {}
        self._leadership = -1
        self._checked_ms: int | None = None

    def begin(self, leadership: int) -> None:
        """Forget everything if a new leadership began.

        Args:
            leadership: its epoch.
        """
        if leadership != self._leadership:
            self._leadership = leadership
            self._reported.clear()
            self._checked_ms = None

    def arrived(self, broker: BrokerImage, now_ms: int) -> None:
        """Prolong a broker's session: its heartbeat may wait behind other commands, or be refused if there are too many."""
        reported = self._of(broker)
        if reported is None:
            reported = self._reported[broker.node_id] = _Reported(broker.epoch, now_ms)
        reported.contact_ms, reported.sent_heartbeat = now_ms, True

    def received(self, broker: BrokerImage, now_ms: int, metadata_offset: int) -> None:
        """Prolong a broker's session, and note what it has applied."""
        self.arrived(broker, now_ms)
        reported = self._reported[broker.node_id]
        reported.metadata_offset = metadata_offset
        if broker.fenced:
            reported.shutdown_offset = None

    def end_session(self, node_id: int) -> None:
        """End a broker's session: its process is gone, or may stop. Another may register with its id at once."""
        if node_id in self._reported:
            self._reported[node_id].contact_ms = None

    def shuts_down(self, broker: BrokerImage, shutdown_offset: int) -> None:
        """Record the end offset of the decision that began a controlled shutdown."""
        reported = self._of(broker)
        assert reported is not None, "a shutdown is requested by a heartbeat"
        reported.shutdown_offset = shutdown_offset

    def has_session(self, broker: BrokerImage, now_ms: int, timeout_ms: int) -> bool:
        """Whether a broker is known to be alive: another process may not take its id.

        A session that a new leader assumes does not count, unlike in Kafka: all nodes may have been killed together, and a
        restarted broker would wait for its own session's end.
        """
        reported = self._of(broker)
        return reported is not None and reported.sent_heartbeat and _lasts(reported, now_ms, timeout_ms)

    def stale(self, image: ClusterImage, now_ms: int, timeout_ms: int) -> list[int]:
        """Return the unfenced brokers without a session, the longest silent first.

        Time in which this controller stood still does not count: more than half of a session between two checks.
        """
        self._forgive_pause(now_ms, timeout_ms)
        for node_id in self._reported.keys() - image.brokers.keys():
            del self._reported[node_id]
        stale: list[tuple[int, int]] = []
        for broker in image.usable_brokers():
            reported = self._of(broker)
            if reported is None:
                self._reported[broker.node_id] = _Reported(broker.epoch, now_ms)
            elif not _lasts(reported, now_ms, timeout_ms):
                stale.append((-1 if reported.contact_ms is None else reported.contact_ms, broker.node_id))
        return [node_id for _, node_id in sorted(stale)]

    def _forgive_pause(self, now_ms: int, timeout_ms: int) -> None:
        checked_ms, self._checked_ms = self._checked_ms, now_ms
        if checked_ms is None or now_ms - checked_ms <= timeout_ms // 2:
            return
        paused_ms = now_ms - checked_ms - check_interval_ms(timeout_ms)
        for reported in self._reported.values():
            if reported.contact_ms is not None:
                reported.contact_ms = min(now_ms, reported.contact_ms + paused_ms)

    def state(self, broker: BrokerImage) -> BrokerState:
        if broker.fenced:
            return BrokerState.FENCED
        return BrokerState.UNFENCED if self._shutdown_offset(broker) is None else BrokerState.CONTROLLED_SHUTDOWN

    def next_state(
        self,
        image: ClusterImage,
        broker: BrokerImage,
        *,
        metadata_offset: int,
        want_fence: bool,
        want_shut_down: bool,
        leads: Callable[[], bool],
    ) -> BrokerState:
        """Return the state that follows from a heartbeat.

        A fenced broker is unfenced once it has applied its registration. A broker with leaderships may stop once they are
        handed over and every active broker has applied that.

        Args:
            leads: whether it leads a partition.
        """
        state = self.state(broker)
        if state is BrokerState.FENCED:
            if want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            caught_up = not want_fence and metadata_offset >= broker.epoch
            return BrokerState.UNFENCED if caught_up else BrokerState.FENCED
        if state is BrokerState.CONTROLLED_SHUTDOWN:
            shutdown_offset = self._shutdown_offset(broker)
            assert shutdown_offset is not None
            may_stop = not leads() and all(offset >= shutdown_offset for offset in self._active_offsets(image))
            return BrokerState.SHUTDOWN_NOW if may_stop else BrokerState.CONTROLLED_SHUTDOWN
        if want_fence:
            return BrokerState.SHUTDOWN_NOW if want_shut_down else BrokerState.FENCED
        if want_shut_down:
            return BrokerState.CONTROLLED_SHUTDOWN if leads() else BrokerState.SHUTDOWN_NOW
        return BrokerState.UNFENCED

    def _active_offsets(self, image: ClusterImage) -> Iterator[int]:
        """Iterate over the reported offsets of brokers that are neither fenced nor shutting down."""
        for broker in image.usable_brokers():
            if self.state(broker) is BrokerState.UNFENCED:
                reported = self._of(broker)
                yield -1 if reported is None else reported.metadata_offset

    def _of(self, broker: BrokerImage) -> _Reported | None:
        """What a broker reported; None if it was another incarnation."""
        reported = self._reported.get(broker.node_id)
        return reported if reported is not None and reported.epoch == broker.epoch else None

    def _shutdown_offset(self, broker: BrokerImage) -> int | None:
        """None if it does not shut down, or if the record of that was not committed."""
        reported = self._of(broker)
        return reported.shutdown_offset if reported is not None and broker.in_controlled_shutdown else None


def _lasts(reported: _Reported, now_ms: int, timeout_ms: int) -> bool:
    return reported.contact_ms is not None and now_ms <= reported.contact_ms + timeout_ms
