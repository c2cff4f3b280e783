"""Commands on brokers that are gone.

Here: fencing those without a session or a process, unregistering; rules and texts of Kafka's `ClusterControlManager`.
Not here: brokers that come, or stop by themselves (`brokers`), who notices that a broker is gone (`nodes.fencing`).
"""

from dataclasses import dataclass
from typing import Any

from busway_bus.controller import leaders
from busway_bus.controller.brokers import after, become
from busway_bus.controller.controller import Surroundings
from busway_bus.controller.heartbeats import BrokerState
from busway_bus.kernel.decision import Decision
from busway_bus.metadata.image import BrokerImage, ClusterImage
from busway_bus.metadata.records import UnregisterBrokerRecord
from busway_protocol.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceStaleBrokers:
    """Fence brokers whose sessions are over; the reply is their ids."""

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[tuple[int, ...]]:
        """Fence one after the other: the leaders that an earlier one's partitions get may be stale, too."""
        stale = surroundings.heartbeats.stale(image, surroundings.now_ms, surroundings.session_timeout_ms)
        records: list[Any] = []
        for node_id in stale:
            fencing = become(BrokerState.FENCED, image, image.brokers[node_id], surroundings.config)
            image = after(image, fencing)
            records += fencing
        return Decision(records=tuple(records), reply=tuple(stale))

    def is_long(self, image: ClusterImage) -> bool:
        return any(leaders.has_many(image, broker.node_id) for broker in image.usable_brokers())

    def part(self, image: ClusterImage, surroundings: Surroundings, *, first: bool) -> Decision[bool]:
        """See `LongCommand`: partitions of the brokers, which are fenced last."""
        for node_id in surroundings.heartbeats.stale(image, surroundings.now_ms, surroundings.session_timeout_ms):
            part = _leave_part(image, node_id, surroundings)
            if part.reply:
                return part
        return Decision(reply=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBroker:
    """Fence a broker whose process is gone; the reply is whether it was unfenced.

    Its session ends, so that the restarted process may register at once.
    """

    node_id: int
    epoch: int

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[bool]:
        broker = image.brokers.get(self.node_id)
        if broker is None or broker.epoch != self.epoch:
            return Decision(reply=False)
        surroundings.heartbeats.end_session(self.node_id)
        records = become(BrokerState.FENCED, image, broker, surroundings.config)
        return Decision(records=tuple(records), reply=bool(records))

    def is_long(self, image: ClusterImage) -> bool:
        return leaders.has_many(image, self.node_id)

    def part(self, image: ClusterImage, surroundings: Surroundings, *, first: bool) -> Decision[bool]:
        """See `LongCommand`: partitions of the broker, which is fenced last."""
        broker = image.brokers.get(self.node_id)
        if broker is None or broker.epoch != self.epoch or broker.fenced:
            return Decision(reply=False)
        return _leave_part(image, self.node_id, surroundings)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker:
    """Remove a stopped broker from the cluster; its partitions keep it as a replica, out of sync."""

    node_id: int

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[None]:
        """Return its end, behind the records of its partitions.

        Raises:
            KafkaError: BROKER_ID_NOT_REGISTERED; INVALID_REQUEST, it is the only node of the cluster.
        """
        broker = self._checked(image, surroundings)
        surroundings.heartbeats.end_session(self.node_id)
        changes = leaders.without_broker(image, self.node_id, config=surroundings.config, unclean=True)
        end = UnregisterBrokerRecord(broker_id=self.node_id, broker_epoch=broker.epoch)
        return Decision(records=(*changes, end), reply=None)

    def is_long(self, image: ClusterImage) -> bool:
        return leaders.has_many(image, self.node_id)

    def part(self, image: ClusterImage, surroundings: Surroundings, *, first: bool) -> Decision[bool]:
        """See `LongCommand`: partitions of the broker, whose registration ends last."""
        self._checked(image, surroundings)
        return _leave_part(image, self.node_id, surroundings, unclean=True)

    def _checked(self, image: ClusterImage, surroundings: Surroundings) -> BrokerImage:
        broker = image.brokers.get(self.node_id)
        if broker is None:
            text = f"Broker ID {self.node_id} is not currently registered"
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)
        config = surroundings.config
        if self.node_id == config.node_id and len(config.voters) <= 1:
            text = f"broker {self.node_id} is its own controller: it cannot leave its cluster; stop it instead"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        return broker


def _leave_part(
    image: ClusterImage, node_id: int, surroundings: Surroundings, *, unclean: bool = False
) -> Decision[bool]:
    return leaders.part_of(
        leaders.without_broker(image, node_id, config=surroundings.config, unclean=unclean, limited=True)
    )
