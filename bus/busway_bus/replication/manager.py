"""The partitions of this node: it follows the cluster image, and appends and reads for the handlers.

What lives here: partition → log, opened and deleted as the image says; append with group commit. What does not: rules of the
protocol (handlers) or of the disk (log).
"""

import asyncio
import time
from collections.abc import Callable
from uuid import UUID

from busway_bus.kernel.config import BrokerConfig
from busway_bus.log.flusher import Flusher
from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import AppendInfo
from busway_bus.log.store import LogStore
from busway_bus.metadata.image import ClusterImage, TopicImage
from busway_bus.replication.partition import Partition
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.types import Buffer


def wall_ms() -> int:
    """Milliseconds since 1970, as record timestamps count them."""
    return time.time_ns() // 1_000_000


class ReplicaManager:
    """Every partition that this node leads."""

    def __init__(self, config: BrokerConfig, store: LogStore, flusher: Flusher) -> None:
        self._config = config
        self._store = store
        self._flusher = flusher
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._names: dict[UUID, str] = {}

    def follow(self, image: ClusterImage) -> None:
        """Open the logs of new topics, delete those of topics that are gone, take over changed settings."""
        wanted: dict[tuple[str, int], tuple[TopicImage, int]] = {
            (topic.name, number): (topic, partition.leader_epoch)
            for topic in image.topics.values()
            for number, partition in enumerate(topic.partitions)
        }
        for key, partition in list(self._partitions.items()):
            if key not in wanted or wanted[key][0].topic_id != partition.topic_id:
                del self._partitions[key]
                self._store.delete(*key)
                partition.wake()
        for key, (topic, epoch) in wanted.items():
            known = self._partitions.get(key)
            if known is None:
                config = self._log_config(image, topic.name)
                log = self._store.open(*key, topic.topic_id, config, wall_ms())
                self._partitions[key] = Partition(
                    topic=topic.name, number=key[1], topic_id=topic.topic_id, log=log, leader_epoch=epoch
                )
            else:
                known.leader_epoch = epoch
        self._names = {topic.topic_id: topic.name for topic in image.topics.values()}

    def reconfigure(self, image: ClusterImage, topic: str) -> None:
        """Take over the settings of one topic."""
        config = self._log_config(image, topic)
        for number in range(len(image.topics[topic].partitions)):
            self._partitions[topic, number].log.config = config

    def _log_config(self, image: ClusterImage, topic: str) -> LogConfig:
        return LogConfig.from_values(self._config.topic_config(image.topic_configs(topic)))

    def find(self, topic: str, number: int) -> Partition:
        """The partition.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        partition = self._partitions.get((topic, number))
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{number} does not exist on this broker")
        return partition

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of the topic with this id, None when there is none."""
        return self._names.get(topic_id)

    def append(
        self, partition: Partition, records: Buffer, *, own: bool = False
    ) -> tuple[AppendInfo, "asyncio.Future[None] | None"]:
        """Write a batch; the future is done when it counts as acknowledged, None when it does already.

        Raises:
            KafkaError: the batch is refused, or the disk failed.
        """
        log = partition.log
        write = log.append_own if own else log.append
        try:
            info = write(records, leader_epoch=partition.leader_epoch, now_ms=wall_ms())
        except OSError as problem:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write {log.directory}: {problem}") from problem
        if log.config.durability != "flush":
            partition.wake()
            return info, None
        if info.duplicate and info.last_offset < log.flushed_offset:
            return info, None
        done = self._flusher.request(log)
        done.add_done_callback(lambda _: partition.wake())
        return info, done

    def flush_unforced(self) -> None:
        """Sync what topics with durability=interval wrote; the node calls this every 100 ms."""
        for partition in self._partitions.values():
            log = partition.log
            if log.config.durability == "interval" and log.flushed_offset < log.end_offset:
                self._flusher.request(log).add_done_callback(lambda done: done.exception())

    def maintain(self) -> None:
        """Retention, rolls, expiry and checkpoints."""
        self._store.maintain(wall_ms(), self._config.get("producer.id.expiration.ms"))
        self.checkpoint()

    def checkpoint(self) -> None:
        """Write the offset checkpoints."""
        self._store.checkpoint({key: partition.high_watermark for key, partition in self._partitions.items()})


class Wakeup:
    """A future that several partitions may complete: what a long poll sleeps on."""

    def __init__(self, partitions: list[Partition]) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._partitions = partitions
        self._callback: Callable[[], None] = self._fire
        for partition in partitions:
            partition.waiters.add(self._callback)

    def _fire(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout_s: float) -> bool:
        """Whether a partition fired within the time."""
        done, _ = await asyncio.wait([self._future], timeout=timeout_s)
        return bool(done)

    def close(self) -> None:
        """Stop listening."""
        for partition in self._partitions:
            partition.waiters.discard(self._callback)
        self._future.cancel()
