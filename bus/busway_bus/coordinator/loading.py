"""Loading of shards from their logs, in slices between other work.

Here: when a log is read, for which leader epoch, retries after disk errors.
Not here: which records count (`replay`), the use of a shard (`runtime`).
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from busway_bus.coordinator.replay import apply_all, apply_records, latest_records
from busway_bus.coordinator.replies import refusal
from busway_bus.coordinator.shard import IncrementalShard, Shard
from busway_bus.log.partition_log import PartitionLog
from busway_bus.replication.manager import ReplicaManager
from busway_bus.replication.partition import Partition
from busway_bus.replication.partition_state import Role
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError

S = TypeVar("S", bound=Shard)
logger = logging.getLogger("busway.coordinator")


def leads(replica: Partition, leader_epoch: int) -> bool:
    """Whether this node leads a partition in the epoch."""
    return replica.state.role is Role.LEADER and replica.state.leader_epoch == leader_epoch


class Loader(Generic[S]):
    """Loads the shards of one topic.

    Args:
        now: time in ms at which records are applied.
        loaded: called with partition, replica, leader epoch and shard.
    """

    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        new_shard: Callable[[], S],
        now: Callable[[], int],
        loaded: Callable[[int, Partition, int, S], None],
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._new_shard = new_shard
        self._now = now
        self._loaded = loaded
        self._tasks: dict[int, asyncio.Task[S]] = {}
        self._problems: dict[int, BaseException] = {}
        self._epochs: dict[int, int] = {}
        """Leader epoch of a task or a problem."""
        self._last_errors: dict[int, str] = {}
        """Last logged error by partition."""

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    def begin(self, partition: int) -> None:
        """Load a partition that this node leads, once for each leader epoch; drop one that it does not lead."""
        replica = self._led(partition)
        epoch = None if replica is None else replica.leader_epoch
        if partition in self._epochs:
            if self._epochs[partition] == epoch:
                return
            self.drop(partition)
        if replica is None or epoch is None:
            return
        if replica.log.size_bytes == 0:
            self._loaded(partition, replica, epoch, self._new_shard())
            return
        self._epochs[partition] = epoch
        if replica.high_watermark < replica.log.end_offset and not replica.state.followers:
            # A crash may revoke what is not durable, so it must not be served.
            self._fail(partition, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "its end is not durable"))
        else:
            task = self._tasks[partition] = asyncio.ensure_future(self._load(replica.log))
            task.add_done_callback(functools.partial(self._over, partition, replica, epoch))

    def drop(self, partition: int) -> None:
        """Forget a partition's load or problem: its leader epoch is over."""
        self._epochs.pop(partition, None)
        self._problems.pop(partition, None)
        task = self._tasks.pop(partition, None)
        if task is not None:
            task.cancel()

    def refusal(self, partition: int) -> KafkaError:
        """Return why a partition has no shard.

        COORDINATOR_LOAD_IN_PROGRESS; NOT_COORDINATOR if another broker leads it or its disk failed; else
        COORDINATOR_NOT_AVAILABLE.
        """
        if partition in self._tasks:
            return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._topic}-{partition} is being read")
        problem = self._problems.get(partition)
        if isinstance(problem, KafkaError):
            return refusal(problem)
        if problem is None and self._led(partition) is None and not self._offline(partition):
            return KafkaError(ErrorCode.NOT_COORDINATOR, f"{self._topic}-{partition} is led by another broker")
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._topic}-{partition} cannot be read")

    def _led(self, partition: int) -> Partition | None:
        try:
            replica = self._replicas.find(self._topic, partition)
        except KafkaError:
            return None
        return replica if replica.state.role is Role.LEADER else None

    def _offline(self, partition: int) -> bool:
        try:
            self._replicas.find(self._topic, partition)
        except KafkaError as problem:
            return problem.code is ErrorCode.KAFKA_STORAGE_ERROR
        return False

    async def wait(self, *, within_s: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=within_s)

    def retry_failed(self) -> None:
        """Allow retries after disk errors, but not of damaged logs."""
        for partition, problem in tuple(self._problems.items()):
            if isinstance(problem, (OSError, KafkaError)):
                self._last_errors[partition] = str(self._problems.pop(partition))
                self._epochs.pop(partition, None)

    def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        self._problems.clear()
        self._epochs.clear()
        self._last_errors.clear()

    async def _load(self, stored: PartitionLog) -> S:
        shard = self._new_shard()
        if isinstance(shard, IncrementalShard):
            steps = apply_all(shard, stored.batches(stored.start_offset), self._now(), start_offset=stored.start_offset)
            await self._replicas.slices.run(steps)  # safe in a thread: the shard is not shared yet
            return shard
        records = await self._replicas.slices.run(latest_records(shard, stored.batches()))
        await self._replicas.scheduler.run("", apply_records(shard, records, self._now()))
        return shard

    def _over(self, partition: int, replica: Partition, leader_epoch: int, task: "asyncio.Task[S]") -> None:
        if self._tasks.get(partition) is not task:
            return  # stopped or dropped
        del self._tasks[partition]
        if self._led(partition) is not replica or not leads(replica, leader_epoch):
            self.begin(partition)  # another broker may have written meanwhile
            return
        problem = task.exception()
        if problem is not None:
            self._fail(partition, problem)
            return
        del self._epochs[partition]
        if self._last_errors.pop(partition, None) is not None:
            logger.warning("%s-%d is read now, and what it keeps is served", self._topic, partition)
        self._loaded(partition, replica, leader_epoch, task.result())

    def _fail(self, partition: int, problem: BaseException) -> None:
        self._problems[partition] = problem
        if self._last_errors.pop(partition, None) != str(problem):
            expected = isinstance(problem, (ProtocolError, KafkaError, OSError))
            text = "%s-%d cannot be read, what it keeps is not served: %s"
            logger.error(text, self._topic, partition, problem, exc_info=None if expected else problem)
