"""This node in the quorum of the metadata log, as a voter or an observer.

Here: the metadata log with its driver, built from the settings; formatting a new cluster.
Not here: the rules (`quorum.core`), the metadata of a node that is its only voter (`quorum.single_voter_writer`).
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import Final

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.dynamic_configs import CLUSTER_KEY
from busway_bus.log.directories import Key
from busway_bus.log.flusher import Flusher
from busway_bus.log.partition_log import PartitionLog
from busway_bus.log.producer_state import ProducerState
from busway_bus.log.store import LogStore
from busway_bus.metadata.features import METADATA_VERSION
from busway_bus.metadata.records import TOPIC
from busway_bus.quorum.driver import QuorumDriver
from busway_bus.quorum.election_file import ElectionFile
from busway_bus.quorum.metadata_log import MetadataLog
from busway_bus.quorum.metadata_snapshots import MetadataSnapshots, SnapshotLimits
from busway_bus.quorum.peers import Peers
from busway_bus.quorum.settings import QuorumSettings
from busway_bus.quorum.snapshot_download import SnapshotDownload
from busway_bus.quorum.voters import ReplicaKey, VoterSet
from busway_protocol.errors import KafkaError
from busway_protocol.machine import Machine

_FORMAT_S: Final = 0.5
"""Interval of checks whether this node leads an empty log."""


class QuorumMember:
    """The metadata log of a voter or an observer.

    Args:
        on_lost: called when this node must stop: its committed records differ from its leader's.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: LogStore,
        flusher: Flusher,
        machine: Machine,
        on_lost: Callable[[], None],
    ) -> None:
        self._config, self._store, self._flusher, self._machine = config, store, flusher, machine
        self._on_lost = on_lost
        self.driver: QuorumDriver
        min_isr = config.dynamic.defaults({})[CLUSTER_KEY]
        self.metadata = MetadataLog(store, flusher, machine, SnapshotLimits.of(config), self._driver, min_isr=min_isr)

    def begin(self) -> None:
        """Join the quorum; requests of other voters are answered from now on."""
        self.driver.begin(self.metadata)

    def _driver(self, partition_log: PartitionLog, snapshots: MetadataSnapshots) -> QuorumDriver:
        store, identity = self._store, self._store.identity
        settings = _settings(self._config)
        self.driver = QuorumDriver(
            me=ReplicaKey(identity.node_id, identity.directory_id),
            voters=VoterSet.fixed(self._config.voters),
            partition_log=partition_log,
            truncate=lambda offset: self._cut(partition_log, store.cut, offset),
            restart=lambda offset: self._cut(partition_log, store.begin_at, offset),
            snapshots=snapshots,
            download=SnapshotDownload(store.files, f"{TOPIC}-0", snapshots),
            election_file=ElectionFile(store.files, f"{TOPIC}-0"),
            flusher=self._flusher,
            machine=self._machine,
            transport=Peers(identity.node_id, self._config.voters, settings.request_timeout_ms),
            settings=settings,
            cluster_id=identity.cluster_id,
            on_lost=lambda _: self._on_lost(),
        )
        return self.driver

    async def _cut(
        self, partition_log: PartitionLog, work: Callable[[Key, int, int], ProducerState], offset: int
    ) -> None:
        await self._flusher.cut(partition_log, functools.partial(work, (TOPIC, 0), offset, self._machine.wall_ms()))

    async def format(self) -> None:
        """Write the first records of a new cluster, once this node leads it."""
        while METADATA_VERSION not in self.metadata.image.features:
            await asyncio.sleep(_FORMAT_S)
            if self.metadata.writer.leading:
                with contextlib.suppress(KafkaError):  # another may lead by now; the writer logs disk errors
                    await self.metadata.format()


def _settings(config: BrokerConfig) -> QuorumSettings:
    get = config.get
    return QuorumSettings(
        election_timeout_ms=get("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=get("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=get("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=get("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=get("controller.quorum.retry.backoff.ms"),
        fetch_max_bytes=get("controller.quorum.fetch.max.bytes"),
        fetch_snapshot_max_bytes=get("controller.quorum.fetch.snapshot.max.bytes"),
    )
