"""Replication of this node's partitions with other brokers.

Here: a fetcher for each leader that this node follows, the ISRs of the partitions that it leads.
Not here: the partitions (`local_partitions`), the loop of a fetcher (`fetcher`), requests for an ISR (`isr_updates`).
"""

import asyncio
from collections.abc import Callable, Iterable

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.node_channels import BrokerChannels, ControllerChannel
from busway_bus.metadata.image import NO_LEADER
from busway_bus.replication.fetcher import Fetcher, FetcherSettings
from busway_bus.replication.fetcher_session import FetchLimits, Key
from busway_bus.replication.follower_logs import FollowerLogs
from busway_bus.replication.isr import AlterPartition
from busway_bus.replication.isr_updates import IsrUpdates
from busway_bus.replication.partition import Partition
from busway_bus.replication.partition_state import Role


class Replicator:
    """Replication of one node.

    Args:
        broker_epoch: of this process, from the response to its registration; -1 before.
    """

    def __init__(
        self,
        config: BrokerConfig,
        logs: FollowerLogs,
        *,
        brokers: BrokerChannels,
        controller: ControllerChannel,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._node_id = config.node_id
        self._logs, self._brokers, self._broker_epoch = logs, brokers, broker_epoch
        self._settings = FetcherSettings(
            limits=FetchLimits(
                max_wait_ms=config.get("replica.fetch.wait.max.ms"),
                min_bytes=config.get("replica.fetch.min.bytes"),
                max_bytes=config.get("replica.fetch.response.max.bytes"),
                partition_max_bytes=config.get("replica.fetch.max.bytes"),
            ),
            backoff_s=config.get("replica.fetch.backoff.ms") / 1000,
            timeout_ms=config.get("replica.socket.timeout.ms"),
        )
        self._isr_updates = IsrUpdates(self._node_id, broker_epoch, controller)
        self._fetchers: dict[int, Fetcher] = {}
        self._leaders: dict[Key, int] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def moved(self, partition: Partition) -> None:
        """Follow the newest record of a partition: fetch from its leader, or not at all."""
        key = partition.topic, partition.index
        leader = partition.leader if partition.state.role is Role.FOLLOWER else NO_LEADER
        if leader == self._node_id or self._closed:
            leader = NO_LEADER
        before = self._leaders.get(key, NO_LEADER)
        if before not in {leader, NO_LEADER}:
            self.gone(key)
        if leader == NO_LEADER:
            return
        self._leaders[key] = leader
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = Fetcher(
                leader,
                node_id=self._node_id,
                broker_epoch=self._broker_epoch,
                channels=self._brokers,
                logs=self._logs,
                settings=self._settings,
            )
        fetcher.put(partition)

    def gone(self, key: Key) -> None:
        """A partition is no longer followed; a fetcher without partitions ends."""
        leader = self._leaders.pop(key, NO_LEADER)
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            return
        fetcher.remove(key)
        if not len(fetcher):
            del self._fetchers[leader]
            closing = asyncio.ensure_future(fetcher.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def alter_isr(self, partition: Partition, request: AlterPartition) -> None:
        self._isr_updates.submit(partition, request)

    async def keep_isrs(
        self, partitions: Callable[[], Iterable[Partition]], monotonic_s: Callable[[], float], lag_max_ms: int
    ) -> None:
        """Remove lagging followers from ISRs, twice in replica.lag.time.max.ms."""
        while True:
            await asyncio.sleep(lag_max_ms / 2000)
            now_ms = int(monotonic_s() * 1000)
            for partition in partitions():
                partition.time_passed(now_ms, lag_max_ms)

    async def close(self) -> None:
        self._closed = True
        self._leaders.clear()
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        await asyncio.gather(self._isr_updates.close(), *(fetcher.close() for fetcher in fetchers))
        await self._logs.close()
        if self._closing:
            await asyncio.wait(self._closing)
