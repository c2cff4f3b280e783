"""The transaction coordinator as handlers use it, one method per operation.

Here: choosing the shard, new producer ids, bounded waits for a transaction's end, periodic work.
Not here: the rules (`transactions.shard`), storage and waiting (`runtime`), markers (`markers`).
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, TypeVar

from busway_bus.coordinator.markers import Markers
from busway_bus.coordinator.refusals import Refusals
from busway_bus.coordinator.runtime import Runtime
from busway_bus.coordinator.shared_call import SharedCall
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.limits import TRANSACTIONS_PER_TICK_MAX
from busway_bus.kernel.node_channels import BrokerChannels
from busway_bus.kernel.topics import TRANSACTIONS_TOPIC
from busway_bus.kernel.transactions import MarkerWriter
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import NO_LEADER, ClusterImage, TopicImage
from busway_bus.replication.manager import ReplicaManager
from busway_bus.transactions.fencing import Identity
from busway_bus.transactions.shard import Begun, Ended, Levels, TransactionShard, transactions_share
from busway_bus.transactions.transaction import TopicPartition, Transaction
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.machine import Machine

if TYPE_CHECKING:
    from busway_bus.coordinator.remote_verification import RemoteVerification

logger = logging.getLogger("busway.transactions")
R = TypeVar("R")


class TransactionCoordinator:
    """All transactional ids of this node; a `kernel.transactions.TransactionVerifier`.

    Methods raise KafkaError if the coordinator is elsewhere, is loading or cannot write.

    Args:
        image: `__transaction_state`, as for `Runtime`; `create_topic` creates it.
        version: finalized level of `transaction.version`.
        channels: to coordinators on other brokers; None where there are none.
    """

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        machine: Machine,
        *,
        create_topic: Callable[[], Awaitable[None]],
        image: Callable[[], TopicImage | None],
        exists: Callable[[str, int], bool],
        version: Callable[[], int],
        new_producer_id: Callable[[], Awaitable[int]],
        writer: MarkerWriter,
        channels: BrokerChannels | None = None,
    ) -> None:
        self._config = config
        self._image = image
        self._remote = None if channels is None else _remote(channels, timeout_ms=config.get("request.timeout.ms"))
        self._creation = SharedCall(create_topic)
        self._version = version
        self._new_producer_id = new_producer_id
        share = transactions_share(refused=Refusals(logger, machine.monotonic_s).tell)
        self.runtime = Runtime(
            TRANSACTIONS_TOPIC,
            functools.partial(TransactionShard, share),
            replicas=replicas,
            machine=machine,
            timeout_ms=config.get("request.timeout.ms"),
            image=image,
            loaded=self._loaded,
        )
        self.markers = Markers(
            self.runtime,
            writer,
            coordinator_epoch=lambda partition: replicas.find(TRANSACTIONS_TOPIC, partition).state.leader_epoch,
            exists=exists,
            levels=lambda: self._levels(0),
        )

    def _loaded(self, partition: int, shard: TransactionShard) -> None:
        self.markers.resume(partition, shard)

    def _levels(self, client_version: int) -> Levels:
        return Levels(client=client_version, server=self._version())

    async def ensure(self) -> None:
        if self.runtime.partitions == 0:
            await self._creation.made()
        self.runtime.load()

    # Producers

    async def begin(self, transactional_id: str, timeout_ms: int, expected: Identity | None, *, host: str) -> Identity:
        """Initialize a producer; return its id and epoch once durable.

        Args:
            expected: its previous identity, if it continues (KIP-360).
            host: charged for the id.

        Raises:
            KafkaError: INVALID_TRANSACTION_TIMEOUT, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, POLICY_VIOLATION.
        """
        if not 0 < timeout_ms <= self._config.get("transaction.max.timeout.ms"):
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, "see transaction.max.timeout.ms of the broker")
        partition = self.runtime.partition_of(transactional_id)

        def decide(new_id: int | None) -> Begun:
            return self.runtime.decide(
                partition,
                lambda shard: shard.begin(
                    transactional_id,
                    timeout_ms,
                    expected,
                    new_id,
                    self._levels(0),
                    now=self.runtime.now(),
                    host=host,
                ),
            )

        return await self._settled(transactional_id, lambda: self._with_id(partition, transactional_id, decide))

    async def add(
        self,
        transactional_id: str,
        identity: Identity,
        partitions: Collection[TopicPartition],
        *,
        client_version: int,
        host: str | None,
    ) -> None:
        """Add partitions to a transaction; return once durable.

        Args:
            host: charged for them; None for the host that is charged for the id.

        Raises:
            KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, POLICY_VIOLATION.
        """
        partition, levels = self.runtime.partition_of(transactional_id), self._levels(client_version)

        async def attempt() -> None:
            await self.runtime.write(
                partition,
                lambda shard: shard.add(
                    transactional_id, identity, partitions, levels, now=self.runtime.now(), host=host
                ),
            )

        await self._settled(transactional_id, attempt)

    async def end(self, transactional_id: str, identity: Identity, *, commit: bool, client_version: int) -> Identity:
        """Decide an end; return the producer's next identity once durable.

        The markers follow.

        Raises:
            KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
        """
        partition, levels = self.runtime.partition_of(transactional_id), self._levels(client_version)

        def decide(new_id: int | None) -> Ended:
            return self.runtime.decide(
                partition,
                lambda shard: shard.end(
                    transactional_id, identity, new_id, levels, commit=commit, now=self.runtime.now()
                ),
            )

        return await self._settled(transactional_id, lambda: self._with_id(partition, transactional_id, decide))

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
        host: str,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Check the partitions of a transactional write with the coordinator; see `TransactionVerifier`.

        Codes are those of AddPartitionsToTxn, and TRANSACTION_ABORTABLE for a partition that was not added.
        """
        identity = (producer_id, producer_epoch)
        coordinator = self._coordinator(transactional_id)
        if self._remote is None or coordinator == self._config.node_id:
            return await self.verify_here(transactional_id, identity, partitions, add=add, host=host)
        if coordinator == NO_LEADER:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return await self._remote.verify(coordinator, transactional_id, identity, tuple(partitions), add=add)

    def _coordinator(self, transactional_id: str) -> int:
        """Return the broker that coordinates an id, NO_LEADER if none does now."""
        image = self._image()
        return NO_LEADER if image is None else image.partitions[self.runtime.partition_of(transactional_id)].leader

    async def verify_here(
        self,
        transactional_id: str,
        identity: Identity,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
        host: str | None,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """As `verify`, where this broker is the coordinator; else NOT_COORDINATOR.

        Args:
            host: charged for added partitions; None for the host that is charged for the id.
        """
        try:
            if not transactional_id:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
            if add:
                await self.add(transactional_id, identity, partitions, client_version=2, host=host)
                return dict.fromkeys(partitions, ErrorCode.NONE)
            if not self._config.get("transaction.partition.verification.enable"):
                return dict.fromkeys(partitions, ErrorCode.NONE)
            partition = self.runtime.partition_of(transactional_id)
            return await self.runtime.read(
                partition, lambda shard: shard.verify(transactional_id, identity, partitions)
            )
        except KafkaError as problem:
            return dict.fromkeys(partitions, problem.code)

    async def _with_id(
        self, partition: int, transactional_id: str, decide: Callable[[int | None], Begun | Ended]
    ) -> Identity:
        outcome = decide(None)
        if outcome.needs_id:
            outcome = decide(await self._new_producer_id())
        if outcome.ending:
            self.markers.begin(partition, transactional_id)  # reads only what is durable
        await self.runtime.read(partition, lambda shard: None)
        if outcome.identity is None:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the open transaction is being aborted")
        return outcome.identity

    async def _settled(self, transactional_id: str, attempt: Callable[[], Awaitable[R]]) -> R:
        try:
            return await attempt()
        except KafkaError as problem:
            if problem.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                raise
            within_s = self._config.get("add.partitions.to.txn.retry.backoff.max.ms") / 1000
            if not await self.markers.over(transactional_id, within_s=within_s):
                raise
        return await attempt()

    # Queries

    def transaction(self, transactional_id: str) -> tuple[Transaction, frozenset[TopicPartition]]:
        """Return an id and its transaction's partitions, or raise TRANSACTIONAL_ID_NOT_FOUND.

        While it is ending these are the partitions without a marker.
        """
        known = self.runtime.shard(self.runtime.partition_of(transactional_id)).transactions.get(transactional_id)
        if known is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        remaining = None
        if known.state.prepared:
            remaining = self.markers.remaining(transactional_id, (known.producer_id, known.epoch))
        return known, known.partitions if remaining is None else remaining

    def transactions(self) -> list[tuple[str, Transaction]]:
        return [entry for shard in self.runtime.all_shards().values() for entry in shard.transactions.items()]

    # Time

    async def abort_overdue(self) -> None:
        self.runtime.load()
        for partition in tuple(self.runtime.shards()):
            if not await self._abort_overdue(partition):
                return

    async def _abort_overdue(self, partition: int) -> bool:
        new_id: int | None = None
        while partition in self.runtime.shards():
            decide = functools.partial(
                TransactionShard.timed_out,
                now=self.runtime.now(),
                levels=self._levels(0),
                at_most=TRANSACTIONS_PER_TICK_MAX,
                new_id=new_id,
            )
            try:
                overdue = self.runtime.decide(partition, decide)
                for transactional_id in overdue.ending:
                    logger.info("transaction %s took longer than its timeout and is aborted", transactional_id)
                    self.markers.begin(partition, transactional_id)
                new_id = await self._new_producer_id() if overdue.needs_id else None
            except KafkaError as problem:
                logger.error(
                    "what is overdue in %s-%d cannot be aborted yet: %s", TRANSACTIONS_TOPIC, partition, problem
                )
                return False
            if not overdue.needs_id and len(overdue.ending) < TRANSACTIONS_PER_TICK_MAX:
                break
            await asyncio.sleep(0)
        return True

    async def expire(self) -> None:
        """Remove ids unused for `transactional.id.expiration.ms`."""
        self.runtime.load()
        before = self.runtime.now() - self._config.get("transactional.id.expiration.ms")
        for partition, shard in self.runtime.shards().items():
            transactional_ids = tuple(shard.transactions)
            for start in range(0, len(transactional_ids), TRANSACTIONS_PER_TICK_MAX):
                if self.runtime.shards().get(partition) is not shard:
                    break
                batch = transactional_ids[start : start + TRANSACTIONS_PER_TICK_MAX]
                try:
                    await self.runtime.write(
                        partition, functools.partial(TransactionShard.expire, transactional_ids=batch, before=before)
                    )
                except KafkaError as problem:
                    logger.error("what expired in %s-%d cannot be removed: %s", TRANSACTIONS_TOPIC, partition, problem)
                    return
                await asyncio.sleep(0)

    async def follow(self, image: ClusterImage, delta: Delta) -> None:
        """Give up verifications at brokers that are fenced."""
        if self._remote is not None:
            self._remote.queues.follow(image)

    async def close(self) -> None:
        """Stop; the next start continues."""
        if self._remote is not None:
            self._remote.queues.close()
        await self.markers.close()
        self.runtime.close()


def _remote(channels: BrokerChannels, *, timeout_ms: int) -> "RemoteVerification":
    from busway_bus.coordinator.remote_verification import RemoteVerification  # keeps the start of a node alone short

    return RemoteVerification(channels, timeout_ms=timeout_ms)
