"""Administration of transactions: listing, finding hanging ones, aborting.

Here: `TransactionsAdmin`, a base of `Admin` (KIP-664).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from busway.cluster.client import ClusterClient, CoordinatorKind
from busway.cluster.coordinator import MOVED
from busway.errors import BrokerError
from busway.net.machine import current_machine
from busway.net.retry import RetryTimer
from busway.types import TopicPartition
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

HANGING_AFTER_MS: Final = 15 * 60 * 1000
"""Kafka's transaction.max.timeout.ms, after which coordinators abort any transaction."""
_PENDING: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in a list."""

    transactional_id: str
    state: str
    producer_id: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """State of a transactional id.

    Attributes:
        coordinator: broker id.
        timeout_ms: an open transaction is aborted after it.
        started_ms: of the open transaction, in ms since 1970; -1 without one.
        partitions: of the transaction.
    """

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A producer in a partition's state.

    Attributes:
        last_sequence: of its last record; -1 without one.
        last_ms: of its last write, in ms since 1970; -1 without one.
        coordinator_epoch: of its last marker; -1 without one.
        open_from: first offset of its open transaction; None without one.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_ms: int
    coordinator_epoch: int
    open_from: int | None


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction in a partition that no coordinator will end; it blocks read_committed readers.

    Attributes:
        transactional_id: of its producer, if a coordinator has it.
        open_from: its first offset.
        last_ms: last write of its producer, in ms since 1970.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    open_from: int
    last_ms: int
    transactional_id: str | None


class TransactionsAdmin:
    _cluster: ClusterClient

    async def list_transactions(
        self, *, states: Iterable[str] = (), producer_ids: Iterable[int] = (), open_for_ms: int = -1
    ) -> list[TransactionListing]:
        """Return the transactional ids of all coordinators.

        Args:
            states: filter by Kafka's names: Ongoing, CompleteCommit and so on.
            producer_ids: filter.
            open_for_ms: only transactions open for longer (KIP-994).

        Raises:
            BrokerError: a state is unknown.
        """
        await self._cluster.refresh()
        request = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=list(producer_ids), duration_filter=open_for_ms
        )
        listings = []
        for node_id in self._cluster.metadata.brokers:
            answer = await self._cluster.ask_node(node_id, request)
            _check(answer.error_code, "listing transactions")
            if answer.unknown_state_filters:
                unknown = ", ".join(answer.unknown_state_filters)
                raise BrokerError(ErrorCode.INVALID_REQUEST, "listing transactions", f"no such state: {unknown}")
            listings += [
                TransactionListing(listing.transactional_id, listing.transaction_state, listing.producer_id)
                for listing in answer.transaction_states
            ]
        return sorted(listings, key=lambda listing: listing.transactional_id)

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Return the state of a transactional id.

        Raises:
            BrokerError: TRANSACTIONAL_ID_NOT_FOUND, or no permission.
        """
        node_id, answer = await self._ask_coordinator_of(
            transactional_id,
            DescribeTransactionsRequest(transactional_ids=[transactional_id]),
            lambda response: response.transaction_states[0].error_code,
        )
        (state,) = answer.transaction_states
        _check(state.error_code, f"transactional id {transactional_id}")
        return TransactionDescription(
            transactional_id,
            node_id,
            state.transaction_state,
            state.producer_id,
            state.producer_epoch,
            state.transaction_timeout_ms,
            state.transaction_start_time_ms,
            tuple(
                TopicPartition(topic.topic, partition_index)
                for topic in state.topics
                for partition_index in topic.partitions
            ),
        )

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """Return each partition's producers, including those with an open transaction.

        Raises:
            BrokerError: a partition does not exist, or may not be read.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        await self._cluster.ensure_topics({partition.topic for partition in wanted})
        result: dict[TopicPartition, list[ProducerDescription]] = {}
        for leader, chosen in self._by_leader(wanted).items():
            topics: dict[str, TopicRequest] = {}
            for partition in chosen:
                topic = topics.setdefault(partition.topic, TopicRequest(name=partition.topic, partition_indexes=[]))
                topic.partition_indexes.append(partition.partition)
            answer = await self._cluster.ask_node(leader, DescribeProducersRequest(topics=list(topics.values())))
            for topic_answer in answer.topics:
                for partition_answer in topic_answer.partitions:
                    _check(
                        partition_answer.error_code,
                        f"{topic_answer.name}-{partition_answer.partition_index}",
                        partition_answer.error_message,
                    )
                    result[TopicPartition(topic_answer.name, partition_answer.partition_index)] = [
                        ProducerDescription(
                            producer.producer_id,
                            producer.producer_epoch,
                            producer.last_sequence,
                            producer.last_timestamp,
                            producer.coordinator_epoch,
                            producer.current_txn_start_offset if producer.current_txn_start_offset >= 0 else None,
                        )
                        for producer in partition_answer.active_producers
                    ]
        return result

    async def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition], *, idle_ms: int = HANGING_AFTER_MS
    ) -> list[HangingTransaction]:
        """Return open transactions in these partitions that coordinators do not have.

        Args:
            idle_ms: minimum time since the producer's last write; below the brokers' transaction.max.timeout.ms it may
                include transactions that are starting or ending.
        """
        now = current_machine().wall_ms()
        candidates = [
            HangingTransaction(
                partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.open_from,
                producer.last_ms,
                None,
            )
            for partition, producers in (await self.describe_producers(partitions)).items()
            for producer in producers
            if producer.open_from is not None and now - producer.last_ms >= idle_ms
        ]
        if not candidates:
            return []
        ids = {candidate.producer_id for candidate in candidates}
        names = {
            listing.producer_id: listing.transactional_id for listing in await self.list_transactions(producer_ids=ids)
        }
        known = await self._described(names.values())
        hanging = []
        for candidate in candidates:
            name = names.get(candidate.producer_id)
            description = known.get(name or "")
            if description is None or not (
                description.state in _PENDING
                and description.producer_id == candidate.producer_id
                and candidate.partition in description.partitions
            ):
                hanging.append(replace(candidate, transactional_id=name))
        return sorted(hanging, key=lambda candidate: (candidate.partition, candidate.open_from))

    async def _described(self, names: Iterable[str]) -> Mapping[str, TransactionDescription]:
        descriptions = {}
        for name in set(names):
            try:
                descriptions[name] = await self.describe_transaction(name)
            except BrokerError as problem:
                if problem.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
        return descriptions

    async def abort_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction of a transactional id by taking it over.

        Its producer is fenced and must be replaced.

        Raises:
            BrokerError: TRANSACTIONAL_ID_NOT_FOUND, or no permission.
        """
        known = await self.describe_transaction(transactional_id)  # InitProducerId would create an unknown one
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=known.timeout_ms)
        _, answer = await self._ask_coordinator_of(transactional_id, request, lambda response: response.error_code)
        _check(answer.error_code, f"transactional id {transactional_id}")

    async def abort_hanging_transaction(self, transaction: HangingTransaction) -> None:
        """Write the missing abort marker into the partition.

        Raises:
            BrokerError: refused, for instance because a newer epoch of the producer or its coordinator has written
                there.
        """
        await self._cluster.ensure_topics({transaction.partition.topic})
        (leader,) = self._by_leader([transaction.partition])
        topic, partition_index = transaction.partition
        marker = WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition_index])],
            coordinator_epoch=max(0, transaction.coordinator_epoch),
        )
        answer = await self._cluster.ask_node(leader, WriteTxnMarkersRequest(markers=[marker]))
        for marker_answer in answer.markers:
            for topic_answer in marker_answer.topics:
                for partition_answer in topic_answer.partitions:
                    _check(partition_answer.error_code, f"{topic}-{partition_index}")

    async def _ask_coordinator_of(self, transactional_id: str, message: Any, code_of: Any) -> tuple[int, Any]:
        timer = RetryTimer(self._cluster.backoff(), self._cluster.timeout_s)
        while True:
            node_id = await self._cluster.find_coordinator(transactional_id, CoordinatorKind.TRANSACTION)
            answer = await self._cluster.ask_node(node_id, message)
            code = error_for(code_of(answer))
            again = code in MOVED or code in {
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.CONCURRENT_TRANSACTIONS,
            }
            if not again or timer.is_expired:
                return node_id, answer
            await timer.sleep()

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = self._cluster.metadata.leader(*partition)
            if leader is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition.topic}-{partition.partition}")
            by_leader.setdefault(leader, []).append(partition)
        return by_leader


def _check(error_code: int, what: str, text: str | None = None) -> None:
    code = error_for(error_code)
    if code is not ErrorCode.NONE:
        raise BrokerError(code, what, text)
