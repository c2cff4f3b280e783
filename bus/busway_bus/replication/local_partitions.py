"""The partitions of this node, following the cluster image.

Here: logs, opened, deleted and reconfigured by the image's deltas. Disk I/O runs in other threads, in batches.
Not here: appending and reading (`manager`), directories (`log.store`).
"""

import asyncio
import contextlib
import functools
import itertools
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from busway.net.machine import OS
from busway_bus.controller.leaders import ReportReplicas
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.counters import PartitionCounters
from busway_bus.kernel.limits import REGISTERED_AT_ONCE_MAX
from busway_bus.log.partition_log import CorruptLog, PartitionLog
from busway_bus.log.store import LogStore, Opening, RemovedLog
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import LOST, NO_LEADER, ClusterImage, PartitionImage, TopicImage
from busway_bus.replication.isr import AlterPartition
from busway_bus.replication.partition import Partition
from busway_bus.replication.topic_log_configs import TopicLogConfigs
from busway_bus.scheduling.off_loop import off_loop
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.machine import Machine

logger = logging.getLogger("busway.replication")

Key = tuple[str, int]
OPENERS: Final = 4
"""Concurrent threads opening logs: one computes while another waits for the disk."""
RECONFIGURED_AT_ONCE: Final = 50
"""Topics reconfigured in one round of the event loop."""
BATCH: Final = 32
"""Logs opened by a thread at a time, and adopted at once."""
_ACCEPT: Final = (
    "Restore the file from a copy, or, to accept the loss, put an empty directory in place of the partition's"
)


class Peers:
    """What follows from the records of partitions for other brokers; nothing on a node alone."""

    def moved(self, partition: Partition) -> None:
        """A partition was opened, or has a new record."""

    def gone(self, key: Key) -> None:
        """A partition was deleted here."""

    def alter_isr(self, partition: Partition, request: AlterPartition) -> None:
        """A leader asks the controller for another ISR."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offline:
    opening: Opening
    problem: Exception


class LocalPartitions:
    """Every partition of this node.

    Attributes:
        undeleted: the next start must repeat a deletion.
        deleted_counters: counts of deleted partitions, so that the node's totals never decrease.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: LogStore,
        reconfigured: Callable[[Partition], None],
        machine: Machine = OS,
        peers: "Peers | None" = None,
    ) -> None:
        self._wall_ms = machine.wall_ms
        self._monotonic_ms: Callable[[], int] = lambda: int(machine.monotonic_s() * 1000)
        self._config = config
        self._reconfigured = reconfigured
        self._peers = Peers() if peers is None else peers
        self._image = ClusterImage()
        self._store = store
        store.high_watermarks = self.high_watermarks
        self._partitions: dict[Key, Partition] = {}
        self._offline: dict[Key, _Offline] = {}
        self._names: dict[UUID, str] = {}
        self._of: dict[UUID, dict[Key, None]] = {}
        self._images: dict[Key, PartitionImage] = {}
        self._lost: set[Key] = set()
        self._elsewhere: set[Key] = set()
        self._held: set[Key] = set()
        """Partitions that this node is to lead once a cut of their logs has succeeded."""
        self._configs = TopicLogConfigs(config)
        self._started = False
        self.deleted_counters = PartitionCounters()
        self.undeleted = False
        self._kept: list[RemovedLog] = []
        self._doomed: deque[str] = deque()
        self._remover: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()

    # What is there

    def __iter__(self) -> Iterator[Partition]:
        """Iterate over a copy of the open partitions."""
        return iter(tuple(self._partitions.values()))

    def get(self, key: Key) -> Partition | None:
        return self._partitions.get(key)

    def find(self, topic: str, partition_index: int) -> Partition:
        """Return an open partition.

        UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER if other brokers have it, or KAFKA_STORAGE_ERROR if its log
        could not be opened.
        """
        partition = self._partitions.get((topic, partition_index))
        if partition is None:
            if (topic, partition_index) in self._offline:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition_index} is offline, see the broker's log"
                )
            placed = self._image.partition(topic, partition_index)
            if placed is not None and self._config.node_id not in placed.replicas:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition_index} does not exist on this broker"
            )
        return partition

    def placed(self, topic: str, partition_index: int) -> PartitionImage | None:
        """Return a partition of any broker, as of the image that is followed."""
        return self._image.partition(topic, partition_index)

    @property
    def image(self) -> ClusterImage:
        return self._image

    def high_watermarks(self) -> dict[Key, int]:
        return {key: partition.high_watermark for key, partition in self._partitions.items()}

    def report(self) -> ReportReplicas | None:
        lost = tuple(key for key in self._offline if key not in self._lost)
        restored = tuple(key for key in self._lost if key in self._partitions)
        return ReportReplicas(node_id=self._config.node_id, lost=lost, restored=restored) if lost or restored else None

    def misplaced(self) -> list[tuple[UUID, UUID, int]]:
        """List partitions whose record names another directory than they have, as directory, topic id and index.

        An offline one has the directory LOST.
        """
        places = [(LOST, key) for key in self._offline if key not in self._lost]
        places += [(self._store.identity.directory_id, key) for key in self._elsewhere if key in self._partitions]
        topics = self._image.topics
        return [(directory, topics[name].topic_id, index) for directory, (name, index) in places if name in topics]

    def awaited(self) -> list[Key]:
        return list(self._offline)

    def name_of(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

    def check_online(self, topic_id: UUID) -> None:
        """Raise KAFKA_STORAGE_ERROR for a topic with offline partitions."""
        offline = [key for key in self._of.get(topic_id, ()) if key in self._offline]
        if offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the topic {offline[0][0]} is created, but {len(offline)} of its partitions are offline: "
                f"{self._offline[offline[0]].problem}; they are opened as soon as that is mended",
            )

    # Following the image

    async def follow(self, image: ClusterImage, delta: Delta) -> None:
        async with self._changing:
            self._image = image
            configured: Collection[str] = delta.configured
            own = image.broker_configs(str(self._config.node_id))
            if self._config.dynamic.follow(cluster=image.broker_configs(""), own=own):
                self._configs.clear()
                configured = image.topics
            unregistered: list[RemovedLog] = []
            for topic_id in delta.removed:
                await self._uncut(self._of.get(topic_id, ()))
                self._names.pop(topic_id, None)
                unregistered += [self._doom(key, topic_id) for key in self._of.pop(topic_id, ())]
            if unregistered:
                await self._delete(unregistered)
            reassigned: list[RemovedLog] = []
            openings = await self._register(image, delta.changed, reassigned)
            if reassigned:
                await self._delete(reassigned)
            await self._open(openings)
            if delta.registered:
                await self._fence(image, delta.registered)
            for count, name in enumerate(configured, 1):
                self._reconfigure(image, name)
                if count % RECONFIGURED_AT_ONCE == 0:
                    await asyncio.sleep(0)
            self._started = True

    async def _uncut(self, keys: Iterable[Key]) -> None:
        """Wait until nothing cuts these logs."""
        while cuts := [here.cutting for key in keys if (here := self.get(key)) is not None and here.cutting]:
            await asyncio.wait(cuts)

    async def _register(self, image: ClusterImage, names: Iterable[str], reassigned: list[RemovedLog]) -> list[Opening]:
        """Register the partitions of topics; return those to open. `reassigned` gets those to delete."""
        openings: list[Opening] = []
        registered = 0
        for name in names:
            for opening in self._openings(image, image.topics[name], reassigned):
                if isinstance(opening, Partition):
                    with contextlib.suppress(OSError, KafkaError):  # the cut's caller has logged it
                        await opening.finish_cut()
                    continue
                if opening is not None:
                    openings.append(opening)
                registered += 1
                if registered % REGISTERED_AT_ONCE_MAX == 0:
                    await asyncio.sleep(0)
        return openings

    async def _fence(self, image: ClusterImage, brokers: Iterable[int]) -> None:
        """Let no high watermark wait for brokers that are fenced or shut down."""
        gone = [broker for broker in brokers if not image.is_active(broker)]
        if not gone:
            return
        for count, partition in enumerate(self, 1):
            if partition.state.followers:
                for broker in gone:
                    partition.ineligible(broker)
            if count % REGISTERED_AT_ONCE_MAX == 0:
                await asyncio.sleep(0)

    def _openings(
        self, image: ClusterImage, topic: TopicImage, reassigned: list[RemovedLog]
    ) -> Iterator[Opening | Partition | None]:
        """Yield the partitions to open, and None for each other one with a new record, which is registered.

        A partition whose log is cut is yielded before, to be waited for; it is not led until it is cut. `reassigned` gets
        those to delete.
        """
        self._names[topic.topic_id] = topic.name
        here = self._of.setdefault(topic.topic_id, {})
        config = self._configs.of(image, topic.name)
        for partition_index, placed in enumerate(topic.partitions):
            key = (topic.name, partition_index)
            leads = placed.leader == self._config.node_id
            if (cut := self._partitions.get(key)) is not None and cut.unfinished is not None and leads:
                yield cut
            while (cut := self._partitions.get(key)) is not None and cut.cutting is not None:
                yield cut
            if self._config.node_id not in placed.replicas:
                if key in here:
                    del here[key]
                    reassigned.append(self._doom(key, topic.topic_id))
                continue
            if self._images.get(key) is placed:
                continue
            if cut is not None and cut.unfinished is not None and leads:
                self._held.add(key)
                continue
            self._held.discard(key)
            self._images[key] = placed
            directory = placed.directory_on(self._config.node_id)
            (self._lost.add if directory == LOST else self._lost.discard)(key)
            (self._elsewhere.add if directory != self._store.identity.directory_id else self._elsewhere.discard)(key)
            partition = self._partitions.get(key)
            if partition is not None:
                partition.registered(placed, self._monotonic_ms())
                self._peers.moved(partition)
                yield None
            elif key not in here:
                here[key] = None
                yield Opening(key=key, topic_id=topic.topic_id, config=config, new=self._started)

    def _reconfigure(self, image: ClusterImage, name: str) -> None:
        topic = image.topics.get(name)
        if topic is None:
            return
        config = self._configs.of(image, name)
        for key in self._of.get(topic.topic_id, ()):
            partition = self._partitions.get(key)
            if partition is not None:
                partition.log.config = config
                self._reconfigured(partition)
            elif key in self._offline:
                self._offline[key] = replace(
                    self._offline[key], opening=replace(self._offline[key].opening, config=config)
                )

    # Opening

    async def _open(self, openings: list[Opening]) -> None:
        """Open logs. A partition whose log fails is offline; the others are served."""
        if not openings:
            return
        self._store.expect(openings)
        problems = await off_loop(functools.partial(self._store.prepare, openings))
        for opening in openings:
            if opening.key in problems:
                self._put(opening, problems[opening.key])
        ready = iter([opening for opening in openings if opening.key not in problems])

        async def opener() -> None:
            while batch := list(itertools.islice(ready, BATCH)):
                outcomes = await off_loop(functools.partial(self._load, batch))
                for opening, outcome in zip(batch, outcomes, strict=True):
                    self._put(opening, outcome)

        async with asyncio.TaskGroup() as openers:
            for _ in range(OPENERS):
                openers.create_task(opener())

    def _load(self, batch: list[Opening]) -> list[PartitionLog | CorruptLog | OSError]:
        now_ms = self._wall_ms()
        return [self._store.load(opening, now_ms) for opening in batch]

    def _put(self, opening: Opening, outcome: PartitionLog | Exception) -> None:
        key = opening.key
        if isinstance(outcome, PartitionLog):
            self._offline.pop(key, None)
            partition = Partition.opened(
                topic=key[0],
                index=key[1],
                topic_id=opening.topic_id,
                log=self._store.adopt(opening, outcome),
                node_id=self._config.node_id,
                high_watermark=self._store.high_watermark(key),
                alter_isr=self._peers.alter_isr,
            )
            partition.registered(self._images[key], self._monotonic_ms())
            self._partitions[key] = partition
            self._peers.moved(partition)
            return
        earlier = self._offline.get(key)
        self._offline[key] = _Offline(opening=opening, problem=outcome)
        if earlier is None or str(earlier.problem) != str(outcome):
            remedy = f". {_ACCEPT}" if isinstance(outcome, CorruptLog) else ""
            logger.error("partition %s-%d is offline: %s%s", *key, outcome, remedy)

    async def reopen(self) -> None:
        """Retry cuts, deletions and openings that failed with an OSError.

        Corrupt logs are fetched again from their leaders if the cluster can do without; others are left to the operator.
        """
        if not (self._kept or self._held or self._offline):
            return
        async with self._changing:
            await self._register(self._image, {topic for topic, _ in self._held}, [])
            cleared = await self._delete_again()
            cleared |= await self._set_aside([key for key in self._offline if self._is_expendable(key)])
            openings = [
                offline.opening
                for key, offline in self._offline.items()
                if isinstance(offline.problem, OSError) or key in cleared
            ]
            await self._open(openings)
            reopened = [opening for opening in openings if opening.key in self._partitions]
        if reopened:
            logger.warning("%d partitions are back, %s-%d first", len(reopened), *reopened[0].key)

    def _is_expendable(self, key: Key) -> bool:
        """Whether a damaged log may be replaced by its leader's: this broker may not lead with what it has.

        The controller has noted that the replica is lost, and it is neither in sync nor eligible. While it is offline
        nothing makes it either again.
        """
        placed, node_id = self._images[key], self._config.node_id
        return (
            not isinstance(self._offline[key].problem, OSError)
            and placed.directory_on(node_id) == LOST
            and placed.leader not in {NO_LEADER, node_id}
            and node_id not in {*placed.isr, *placed.elr, *placed.last_known_elr}
        )

    async def _set_aside(self, keys: list[Key]) -> set[Key]:
        """Make room for new logs in place of damaged ones; return their partitions."""
        if not keys:
            return set()
        try:
            names = await off_loop(functools.partial(self._store.set_aside, keys))
        except OSError as problem:
            logger.error("the files of damaged replicas cannot be set aside yet, it is tried again: %s", problem)
            return set()
        for key, name in zip(keys, names, strict=True):
            damaged = self._offline[key]
            self._offline[key] = replace(damaged, opening=replace(damaged.opening, new=True))
            logger.error(
                "%s-%d is damaged: %s; it is fetched again from broker %d, and the files are kept as %s: remove them once "
                "they are not needed",
                *key,
                damaged.problem,
                self._images[key].leader,
                name,
            )
        return {*keys}

    # Deleting

    def _doom(self, key: Key, topic_id: UUID) -> RemovedLog:
        self._offline.pop(key, None)
        self._held.discard(key)
        self._images.pop(key, None)
        self._lost.discard(key)
        self._elsewhere.discard(key)
        partition = self._partitions.pop(key, None)
        unregistered = self._store.unregister(key, topic_id)
        if partition is not None:
            self._peers.gone(key)
            self.deleted_counters.add(partition.counters)
            partition.counters = self.deleted_counters  # for requests that still have it
            partition.wake()
        return unregistered

    async def _delete(self, unregistered: list[RemovedLog]) -> None:
        try:
            self._doomed += await off_loop(functools.partial(self._store.delete, unregistered))
        except OSError as problem:
            self.undeleted = True
            self._kept += unregistered
            logger.error("the files of deleted partitions cannot be set aside yet, it is tried again: %s", problem)
        if self._doomed and self._remover is None:
            self._remover = asyncio.ensure_future(self._remove())

    async def _delete_again(self) -> set[Key]:
        """Retry failed deletions; return partitions with free directories.

        Directories of later partitions with the same names stay.
        """
        kept, self._kept = self._kept, []
        if not kept:
            return set()
        try:
            await self._delete(await off_loop(functools.partial(self._store.undeleted, kept)))
        except OSError:
            self._kept = kept
        return {partition.key for partition in kept} - {partition.key for partition in self._kept}

    async def _remove(self) -> None:
        try:
            while self._doomed:
                await off_loop(functools.partial(self._store.remove, self._doomed.popleft()))
        finally:
            self._remover = None

    async def close(self) -> None:
        """Stop the removal; the next start continues it."""
        self._doomed.clear()
        while self._remover is not None:
            await asyncio.wait([self._remover])
