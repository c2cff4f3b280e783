"""Several brokers with all their coordinators, which ask each other by the real handlers."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from tests.unit.busway_bus.coordinator.brokers import Broker, Brokers, machine

from busway_bus.coordinator.group_coordinator import GroupCoordinator
from busway_bus.coordinator.marker_writer import LocalMarkerWriter
from busway_bus.coordinator.remote_markers import ClusterMarkerWriter
from busway_bus.coordinator.remote_share_states import ClusterSharePersister
from busway_bus.coordinator.share_group_coordinator import ShareGroups
from busway_bus.coordinator.share_state_coordinator import ShareCoordinator
from busway_bus.coordinator.transaction_coordinator import TransactionCoordinator
from busway_bus.handlers import (
    add_partitions_to_txn,
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
    write_txn_markers,
)
from busway_bus.kernel.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from busway_bus.metadata.features import SHARE_VERSION, TRANSACTION_VERSION
from busway_bus.metadata.group_settings import group_settings
from busway_bus.metadata.records import FeatureLevelRecord
from busway_protocol.messages.share_state import (
    DeleteShareGroupStateRequest,
    InitializeShareGroupStateRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    WriteShareGroupStateRequest,
)
from busway_protocol.messages.transactions import AddPartitionsToTxnRequest, WriteTxnMarkersRequest

HANDLERS: dict[type, tuple[Callable[[Any, Any], Awaitable[Any]], int]] = {
    AddPartitionsToTxnRequest: (add_partitions_to_txn.handle, 5),
    WriteTxnMarkersRequest: (write_txn_markers.handle, 2),
    InitializeShareGroupStateRequest: (initialize_share_group_state.handle, 0),
    ReadShareGroupStateRequest: (read_share_group_state.handle, 0),
    WriteShareGroupStateRequest: (write_share_group_state.handle, 1),
    DeleteShareGroupStateRequest: (delete_share_group_state.handle, 0),
    ReadShareGroupStateSummaryRequest: (read_share_group_state_summary.handle, 1),
}
"""Handlers of requests between brokers, and their versions."""


class Coordinators:
    """The coordinators of one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.image = broker.image

        async def create() -> None:
            raise AssertionError("the topic is there")

        self.groups = GroupCoordinator(
            broker.config, broker.replicas, machine(), create_topic=create, cluster=lambda: broker.image
        )
        self.markers = LocalMarkerWriter(broker.replicas, self.groups)
        self.writer = ClusterMarkerWriter(
            self.markers, broker.node_id, broker.channels, image=lambda: broker.image, timeout_ms=30_000
        )
        self.next_producer_id = 1000 * broker.node_id
        self.transactions = TransactionCoordinator(
            broker.config,
            broker.replicas,
            machine(),
            create_topic=create,
            image=lambda: broker.image.topics.get(TRANSACTIONS_TOPIC),
            exists=lambda topic, partition: broker.image.partition(topic, partition) is not None,
            version=lambda: broker.image.features.get(TRANSACTION_VERSION, 0),
            new_producer_id=self._new_producer_id,
            writer=self.writer,
            channels=broker.channels,
        )
        broker.replicas.verifications.verifier = self.transactions
        self.share_states = ShareCoordinator(
            broker.config,
            broker.replicas,
            machine(),
            create_topic=create,
            image=lambda: broker.image.topics.get(SHARE_STATE_TOPIC),
            exists=lambda topic_id, partition: broker.image.partition_by_id(topic_id, partition) is not None,
        )
        self.persister = ClusterSharePersister(
            self.share_states, broker.node_id, broker.channels, image=lambda: broker.image, timeout_ms=30_000
        )
        setting = group_settings(broker.config, lambda: broker.image)
        self.share_groups = ShareGroups(broker.config, self.groups, self.persister, machine(), setting=setting)
        broker.watchers += [
            self.groups.runtime.follow,
            self.transactions.runtime.follow,
            self.share_states.runtime.follow,
            self._follow,
        ]
        broker.handler = self.handle

    async def _new_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    def _follow(self) -> None:
        self.image = self.broker.image
        self.writer.queues.follow(self.image)
        self.persister.queues.follow(self.image)

    async def handle(self, request: Any) -> Any:
        handler, version = HANDLERS[type(request)]
        context = SimpleNamespace(node=self, api_version=version, client_host="broker")
        return await handler(request, context)

    async def close(self) -> None:
        await self.transactions.close()
        await self.share_groups.close()
        self.groups.close()
        self.share_states.runtime.close()


class CoordinatedBrokers(Brokers):
    """Three brokers with topics of one partition each.

    Groups are at broker 1, transactions and share states at 2, `data` at 3.
    """

    def __init__(self) -> None:
        super().__init__(3, **{"group.share.assignment.interval.ms": "0"})
        self.coordinators = {broker.node_id: Coordinators(broker) for broker in self}

    async def start(self) -> None:
        await self.create(OFFSETS_TOPIC, [1])
        await self.create(TRANSACTIONS_TOPIC, [2])
        await self.create(SHARE_STATE_TOPIC, [2])
        await self.create("data", [3])
        await self.apply(FeatureLevelRecord(name=SHARE_VERSION, feature_level=1))

    def at(self, node_id: int) -> Coordinators:
        return self.coordinators[node_id]

    async def close(self) -> None:
        for each in self.coordinators.values():
            await each.close()
        await super().close()
