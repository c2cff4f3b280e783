"""Commands on brokers.

Here: registering, heartbeats, controlled shutdown; rules and texts of Kafka's `ClusterControlManager` and
`ReplicationControlManager`.
Not here: brokers that are gone (`lost_brokers`), sessions and the next state (`heartbeats`), the partitions of a broker
(`leaders`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from busway_bus.controller import leaders
from busway_bus.controller.controller import Surroundings
from busway_bus.controller.heartbeats import BrokerState
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.log.checkpoints import uuid_text
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.features import METADATA_VERSION
from busway_bus.metadata.image import Address, BrokerImage, ClusterImage
from busway_bus.metadata.partition_places import LEADERLESS
from busway_bus.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from busway_protocol.errors import ErrorCode, KafkaError

NO_EPOCH: Final = -1
_RESERVED_DIRECTORIES: Final = 100
"""Directory ids below this number are none of a broker's (KIP-858)."""
_OTHER_BROKER: Final = (
    "Another broker is registered with that broker id. If the broker was recently restarted this should self-resolve once the "
    "heartbeat manager expires the broker's session."
)


def addresses(registration: "RegisterBroker") -> Mapping[str, Address]:
    return {
        end.name: Address(host=end.host, port=end.port, security_protocol=end.security_protocol)
        for end in registration.endpoints
    }


def registered(image: ClusterImage, node_id: int, epoch: int) -> BrokerImage:
    """Return a broker in its present epoch.

    Raises:
        KafkaError: STALE_BROKER_EPOCH, it has another epoch, or is not registered.
    """
    broker = image.brokers.get(node_id)
    if broker is None:
        text = f"No broker registration found for broker id {node_id}"
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, text)
    if broker.epoch != epoch:
        text = f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}"
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, text)
    return broker


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBroker:
    """Register a started broker; the reply is its epoch.

    Attributes:
        incarnation: id of the process; a repeated request of it keeps the epoch.
        endpoints: client addresses, by listener.
        features: name → lowest and highest supported level.
        joins: it registers with the controller of a cluster: it is checked, and fenced until it has caught up. Without,
            the only node registers with itself.
        cluster_id: of the broker; checked if the controller knows its own.
        previous_epoch: epoch of its last run if that lost no acknowledged record, else NO_EPOCH.
        is_zk: it is a broker of ZooKeeper that migrates; none is served.
    """

    node_id: int
    incarnation: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    directories: tuple[UUID, ...]
    features: tuple[tuple[str, int, int], ...]
    joins: bool = False
    cluster_id: str = ""
    previous_epoch: int = NO_EPOCH
    is_zk: bool = False

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[int]:
        """Return the registration's record, behind those of the partitions that the broker leads no more.

        Raises:
            KafkaError: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, BROKER_ID_NOT_REGISTERED,
                INVALID_REGISTRATION, UNSUPPORTED_VERSION.
        """
        before = image.brokers.get(self.node_id)
        if not self.joins:
            return Decision(
                records=(self._record(surroundings.next_offset, fenced=False),), reply=surroundings.next_offset
            )
        self._check(image, before, surroundings)
        if before is not None and before.incarnation == self.incarnation:
            record = self._record(before.epoch, fenced=before.fenced, stops=before.in_controlled_shutdown)
            return Decision(records=(record,), reply=before.epoch)
        changes = self._leave(image, before, surroundings)
        epoch = surroundings.next_offset
        return Decision(records=(*changes, self._record(epoch, fenced=True)), reply=epoch)

    def is_long(self, image: ClusterImage) -> bool:
        return self.joins and leaders.has_many(image, self.node_id)

    def part(self, image: ClusterImage, surroundings: Surroundings, *, first: bool) -> Decision[bool]:
        """See `LongCommand`: partitions that the broker leads no more."""
        before = image.brokers.get(self.node_id)
        self._check(image, before, surroundings)
        if before is not None and before.incarnation == self.incarnation:
            return Decision(reply=False)
        return leaders.part_of(self._leave(image, before, surroundings, limited=True))

    def _leave(
        self, image: ClusterImage, before: BrokerImage | None, surroundings: Surroundings, *, limited: bool = False
    ) -> list[PartitionChangeRecord]:
        clean = before is not None and before.epoch == self.previous_epoch
        return leaders.without_broker(
            image, self.node_id, config=surroundings.config, unclean=not clean, limited=limited
        )

    def _check(self, image: ClusterImage, before: BrokerImage | None, surroundings: Surroundings) -> None:
        self._check_identity(before, surroundings)
        self._check_directories(image)
        self._check_features(image)

    def _record(self, epoch: int, *, fenced: bool, stops: bool = False) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=self.node_id,
            incarnation_id=self.incarnation,
            broker_epoch=epoch,
            end_points=[
                BrokerEndpoint(name=name, host=end.host, port=end.port, security_protocol=end.security_protocol)
                for name, end in addresses(self).items()
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, lowest, highest in self.features
            ],
            rack=self.rack,
            fenced=fenced,
            in_controlled_shutdown=stops,
            log_dirs=list(self.directories),
        )

    def _check_identity(self, before: BrokerImage | None, surroundings: Surroundings) -> None:
        expected = surroundings.cluster_id
        if expected and self.cluster_id != expected:
            text = f"Expected cluster ID {expected}, but got cluster ID {self.cluster_id}"
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
        if (
            before is not None
            and before.incarnation != self.incarnation
            and surroundings.heartbeats.has_session(before, surroundings.now_ms, surroundings.session_timeout_ms)
        ):
            raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, _OTHER_BROKER)
        if self.is_zk:
            text = "Controller does not support registering ZK brokers."
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)

    def _check_directories(self, image: ClusterImage) -> None:
        def refused(text: str) -> KafkaError:
            return KafkaError(ErrorCode.INVALID_REGISTRATION, text)

        if not self.directories:
            raise refused("No directories specified in request")
        if any(directory.int < _RESERVED_DIRECTORIES for directory in self.directories):
            raise refused("Reserved directory ID in request")
        own = set(self.directories)
        if len(own) != len(self.directories):
            raise refused("Duplicate directory ID in request")
        for broker in image.brokers.values():
            if broker.node_id != self.node_id and (shared := own.intersection(broker.directories)):
                directory = next(directory for directory in self.directories if directory in shared)
                raise refused(f"Broker {broker.node_id} is already registered with directory {uuid_text(directory)}")

    def _check_features(self, image: ClusterImage) -> None:
        """Refuse a broker that does not support the finalized level of each feature."""
        supported = {name: (lowest, highest) for name, lowest, highest in self.features}
        for name, (lowest, highest) in supported.items():
            self._check_level(name, image.features.get(name, 0), lowest, highest)
        if METADATA_VERSION not in supported:
            text = "Request features do not contain 'metadata.version'"
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, text)
        for name, level in image.features.items():
            if name not in supported:
                self._check_level(name, level, 0, 0)

    @staticmethod
    def _check_level(name: str, level: int, lowest: int, highest: int) -> None:
        if not lowest <= level <= highest:
            text = (
                f"Unable to register because the broker does not support finalized version {level} of {name}. The broker wants a version "
                f"between {lowest} and {highest}, inclusive."
            )
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """A broker's state.

    Attributes:
        caught_up: it has applied its registration.
    """

    caught_up: bool
    state: BrokerState


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeat:
    """Prolong a broker's session, and decide on its next state.

    Attributes:
        metadata_offset: its last applied record.
        offline_directories: failed ones; their replicas leave the ISRs.
        cordoned_directories: those that take no new partitions; None for unchanged.
    """

    node_id: int
    epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_directories: tuple[UUID, ...] = ()
    cordoned_directories: tuple[UUID, ...] | None = None

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[HeartbeatReply]:
        """Return the records of a new state, and of directories that changed.

        Raises:
            KafkaError: STALE_BROKER_EPOCH.
        """
        broker = registered(image, self.node_id, self.epoch)
        heartbeats = surroundings.heartbeats
        heartbeats.received(broker, surroundings.now_ms, self.metadata_offset)
        before = heartbeats.state(broker)
        state = heartbeats.next_state(
            image,
            broker,
            metadata_offset=self.metadata_offset,
            want_fence=self.want_fence,
            want_shut_down=self.want_shut_down,
            leads=lambda: leaders.leads_any(image, self.node_id),
        )
        records = [] if state is before else become(state, image, broker, surroundings.config)
        if self.offline_directories or self.cordoned_directories is not None:
            records += self._directories(after(image, records), surroundings.config)
        if state is BrokerState.SHUTDOWN_NOW:
            heartbeats.end_session(self.node_id)
        elif state is BrokerState.CONTROLLED_SHUTDOWN and before is not state:
            heartbeats.shuts_down(broker, surroundings.next_offset + len(records) - 1)
        reply = HeartbeatReply(caught_up=self.metadata_offset >= broker.epoch, state=state)
        return Decision(records=tuple(records), reply=reply)

    def is_long(self, image: ClusterImage) -> bool:
        broker = image.brokers.get(self.node_id)
        if broker is None:
            return False
        if self.want_shut_down:
            return not broker.fenced and leaders.has_many(image, self.node_id)
        return broker.fenced and not self.want_fence and leaders.has_many(image, LEADERLESS)

    def part(self, image: ClusterImage, surroundings: Surroundings, *, first: bool) -> Decision[bool]:
        """See `LongCommand`: the begin of a controlled shutdown, or elections behind the record that unfences.

        Both states are written first: a broker that shuts down enters no ISR again, and only an active one leads.
        """
        broker = registered(image, self.node_id, self.epoch)
        heartbeats = surroundings.heartbeats
        if not self.want_shut_down:
            if first and (not broker.fenced or self.want_fence or self.metadata_offset < broker.epoch):
                return Decision(reply=False)
            changes = leaders.with_broker(image, self.node_id, config=surroundings.config, limited=True)
            unfenced = [_changed(broker, fenced=-1)] if broker.fenced else []
            return Decision(records=(*unfenced, *changes), reply=leaders.is_full(changes))
        if broker.fenced or (first and heartbeats.state(broker) is BrokerState.CONTROLLED_SHUTDOWN):
            return Decision(reply=False)
        changes = leaders.without_broker(image, self.node_id, config=surroundings.config, limited=True)
        if first and not leaders.is_full(changes):
            return Decision(reply=False)
        heartbeats.received(broker, surroundings.now_ms, self.metadata_offset)
        stops = [] if broker.in_controlled_shutdown else [_changed(broker, in_controlled_shutdown=1)]
        heartbeats.shuts_down(broker, surroundings.next_offset + len(stops) + len(changes) - 1)
        return Decision(records=(*stops, *changes), reply=leaders.is_full(changes))

    def _directories(self, image: ClusterImage, config: BrokerConfig) -> list[Any]:
        broker = image.brokers[self.node_id]
        records: list[Any] = []
        offline = set(self.offline_directories).intersection(broker.directories)
        if offline:
            changes = leaders.without_broker(image, self.node_id, config=config)
            records += [change for change in changes if self._directory(image, change) in offline]
            online = [directory for directory in broker.directories if directory not in offline]
            records.append(_changed(broker, log_dirs=online))
        cordoned, known = self.cordoned_directories, broker.cordoned_directories
        if cordoned is not None and (known is None or set(known) != set(cordoned)):
            records.append(_changed(broker, cordoned_log_dirs=list(cordoned)))
        return records

    def _directory(self, image: ClusterImage, change: Any) -> UUID | None:
        partition = image.partition_by_id(change.topic_id, change.partition_id)
        return None if partition is None else partition.directory_on(self.node_id)


def after(image: ClusterImage, records: Iterable[Any]) -> ClusterImage:
    """Return the image after records that are not written yet."""
    delta = Delta(image)
    for record in records:
        delta.apply(record)
    return delta.image()


def become(state: BrokerState, image: ClusterImage, broker: BrokerImage, config: BrokerConfig) -> list[Any]:
    """Build the records of a broker's new state; none if the image has it already."""
    if state is BrokerState.UNFENCED:
        return [_changed(broker, fenced=-1), *leaders.with_broker(image, broker.node_id, config=config)]
    changes: list[Any] = [*leaders.without_broker(image, broker.node_id, config=config)]
    if state is BrokerState.CONTROLLED_SHUTDOWN:
        return changes if broker.in_controlled_shutdown else [_changed(broker, in_controlled_shutdown=1), *changes]
    return [] if broker.fenced else [*changes, _changed(broker, fenced=1)]


def _changed(broker: BrokerImage, **fields: Any) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, **fields)
