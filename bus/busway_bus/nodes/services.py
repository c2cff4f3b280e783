"""The services of a broker's handlers: coordinators, share partitions and what they share.

Here: building them, for a node alone and for one of several.
Not here: what each of them does; their start and end (`node`).
"""

from collections.abc import Awaitable, Callable, Mapping

from busway_bus.coordinator.group_coordinator import GroupCoordinator
from busway_bus.coordinator.marker_writer import LocalMarkerWriter
from busway_bus.coordinator.producer_ids import ProducerIds
from busway_bus.coordinator.share_group_coordinator import ShareGroups
from busway_bus.coordinator.share_state_coordinator import ShareCoordinator
from busway_bus.coordinator.transaction_coordinator import TransactionCoordinator
from busway_bus.handlers.common.context import NodeServices
from busway_bus.handlers.common.metadata_responses import MetadataAnswers
from busway_bus.handlers.common.topic_auto_creation import TopicAutoCreator
from busway_bus.handlers.common.topic_creation import create_dead_letter_topic, create_topic
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.files import DataDirectory
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.kernel.share_state import SharePersister
from busway_bus.kernel.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from busway_bus.kernel.transactions import MarkerWriter
from busway_bus.log.meta_properties import Identity
from busway_bus.metadata.features import TRANSACTION_VERSION
from busway_bus.metadata.group_settings import group_settings
from busway_bus.nodes.member import Member
from busway_bus.replication.fetch_sessions import FetchSessions
from busway_bus.replication.manager import ReplicaManager
from busway_bus.scheduling.fair_share import FairScheduler
from busway_bus.share.dead_letters import DeadLetters
from busway_bus.share.manager import SharePartitions
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.machine import Machine


class ServicesBuilder:
    """Builds the services of one start.

    Attributes:
        closing: give up requests to other brokers; called before the services are closed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        machine: Machine,
        member: Member,
        replicas: ReplicaManager,
        scheduler: FairScheduler,
    ) -> None:
        self._config, self._machine, self._member = config, machine, member
        self._replicas, self._scheduler = replicas, scheduler
        self._timeout_ms = config.get("request.timeout.ms")
        self.closing: list[Callable[[], None]] = []
        self._services: NodeServices

    async def build(
        self, files: DataDirectory, identity: Identity, controller_advertised: Mapping[str, Endpoint]
    ) -> NodeServices:
        """Build all; they follow the images from now on."""
        config, machine, replicas, images = self._config, self._machine, self._replicas, self._member.images
        groups = GroupCoordinator(
            config,
            replicas,
            machine,
            create_topic=self._creates(OFFSETS_TOPIC),
            cluster=lambda: images.image,
        )
        markers = LocalMarkerWriter(replicas, groups)
        producer_ids = ProducerIds(self._member.controller, config.node_id, lambda: images.image)
        transactions = TransactionCoordinator(
            config,
            replicas,
            machine,
            create_topic=self._creates(TRANSACTIONS_TOPIC),
            image=lambda: images.image.topics.get(TRANSACTIONS_TOPIC),
            exists=lambda topic, partition: images.image.partition(topic, partition) is not None,
            version=lambda: images.image.features.get(TRANSACTION_VERSION, 0),
            new_producer_id=producer_ids.take,
            writer=await self._marker_writer(markers),
            channels=self._member.to_brokers,
        )
        replicas.verifications.verifier = transactions
        settings = group_settings(config, lambda: images.image)
        share_states = ShareCoordinator(
            config,
            replicas,
            machine,
            create_topic=self._creates(SHARE_STATE_TOPIC),
            image=lambda: images.image.topics.get(SHARE_STATE_TOPIC),
            exists=lambda topic_id, partition: images.image.partition_by_id(topic_id, partition) is not None,
        )
        persister = await self._share_persister(share_states)
        share_groups = ShareGroups(config, groups, persister, machine, setting=settings)
        shares = SharePartitions(
            replicas,
            machine,
            persister=persister,
            setting=settings,
            letters=DeadLetters(
                config,
                replicas,
                machine,
                image=lambda: images.image,
                setting=settings,
                create_topic=lambda name: create_dead_letter_topic(self._services, name),
            ),
            sessions_max=config.get("group.share.max.share.sessions"),
        )
        share_states.reinitialized = shares.reinitialized
        await images.subscribe(share_states.follow)
        await images.subscribe(share_groups.follow)
        if self._member.to_brokers is not None:
            await images.subscribe(transactions.follow)
        self._services = NodeServices(
            config=config,
            machine=machine,
            volume=files.volume,
            cluster_id=identity.cluster_id,
            directory_id=identity.directory_id,
            controller_advertised=controller_advertised,
            metadata=self._member.metadata,
            images=images,
            controller=self._member.controller,
            replicas=replicas,
            creations=TopicAutoCreator(),
            metadata_answers=MetadataAnswers(),
            forwarding=self._member.forwarding,
            scheduler=self._scheduler,
            sessions=FetchSessions(config.get("max.incremental.fetch.session.cache.slots")),
            groups=groups,
            transactions=transactions,
            share_states=share_states,
            share_groups=share_groups,
            markers=markers,
            producer_ids=producer_ids,
            shares=shares,
        )
        return self._services

    async def _marker_writer(self, markers: LocalMarkerWriter) -> MarkerWriter:
        channels, images = self._member.to_brokers, self._member.images
        if channels is None:
            return markers
        from busway_bus.coordinator.remote_markers import ClusterMarkerWriter  # keeps the start of a node alone short

        writer = ClusterMarkerWriter(
            markers, self._config.node_id, channels, image=lambda: images.image, timeout_ms=self._timeout_ms
        )
        self.closing.append(writer.queues.close)
        await images.subscribe(writer.follow)
        return writer

    async def _share_persister(self, local: ShareCoordinator) -> SharePersister:
        channels, images = self._member.to_brokers, self._member.images
        if channels is None:
            return local
        from busway_bus.coordinator.remote_share_states import ClusterSharePersister  # as above

        persister = ClusterSharePersister(
            local, self._config.node_id, channels, image=lambda: images.image, timeout_ms=self._timeout_ms
        )
        self.closing.append(persister.queues.close)
        await images.subscribe(persister.follow)
        return persister

    def _creates(self, topic: str) -> Callable[[], Awaitable[None]]:
        async def create() -> None:
            try:
                await create_topic(self._services, topic)
            except KafkaError as problem:
                # An earlier request continues after its client has gone.
                if problem.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

        return create
