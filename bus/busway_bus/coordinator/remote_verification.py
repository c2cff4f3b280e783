"""Verification of transactions by the transaction coordinator on another broker (KIP-890).

Here: AddPartitionsToTxn requests from version 4 on, several transactions together, and the errors of a lost one.
Not here: the answer (`transaction_coordinator`), errors for producers (`replication.transaction_verification`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from busway_bus.coordinator.broker_queues import BrokerQueues, Destination
from busway_bus.kernel.node_channels import BrokerChannels
from busway_bus.transactions.fencing import Identity
from busway_bus.transactions.transaction import TopicPartition, by_topic
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

Codes = Mapping[TopicPartition, ErrorCode]
_PURPOSE: Final = "verification"
_TOGETHER: Final = 500
"""Transactions of one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verification:
    transactional_id: str
    identity: Identity
    partitions: tuple[TopicPartition, ...]
    add: bool


class RemoteVerification:
    """Asks transaction coordinators on other brokers, with one request under way for each."""

    def __init__(self, channels: BrokerChannels, *, timeout_ms: int) -> None:
        self._channels = channels
        self._timeout_ms = timeout_ms
        self.queues: BrokerQueues[_Verification, Codes] = BrokerQueues(
            self._send, key=lambda asked: asked.transactional_id, at_once=_TOGETHER
        )

    async def verify(
        self,
        coordinator: int,
        transactional_id: str,
        identity: Identity,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Codes:
        """As `kernel.transactions.TransactionVerifier`; NETWORK_EXCEPTION where the broker gave no answer."""
        asked = _Verification(
            transactional_id=transactional_id, identity=identity, partitions=tuple(partitions), add=add
        )
        try:
            return await self.queues.ask(Destination(coordinator), asked)
        except KafkaError as problem:
            return dict.fromkeys(partitions, _code_of(problem, add=add))

    async def _send(self, destination: Destination, asked: Sequence[_Verification]) -> list[Codes]:
        request = AddPartitionsToTxnRequest(transactions=[_transaction(verification) for verification in asked])
        response: AddPartitionsToTxnResponse = await self._channels.send(
            destination.node_id, request, purpose=_PURPOSE, timeout_ms=self._timeout_ms
        )
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(response.error_code), f"broker {destination.node_id} verifies nothing")
        results = {
            result.transactional_id: {
                (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
                for topic in result.topic_results
                for partition in topic.results_by_partition
            }
            for result in response.results_by_transaction
        }
        return [results[verification.transactional_id] for verification in asked]


def _transaction(verification: _Verification) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=verification.transactional_id,
        producer_id=verification.identity[0],
        producer_epoch=verification.identity[1],
        verify_only=not verification.add,
        topics=[
            AddPartitionsToTxnTopic(name=topic.topic, partitions=topic.partition_ids)
            for topic in by_topic(verification.partitions)
        ],
    )


def _code_of(problem: KafkaError, *, add: bool) -> ErrorCode:
    """Map an error of the whole request as Kafka does.

    Producers retry on NETWORK_EXCEPTION. They know no authorization of the cluster. A broker that cannot verify
    verifies nothing.
    """
    if problem.code is ErrorCode.BROKER_NOT_AVAILABLE:
        return ErrorCode.NETWORK_EXCEPTION
    if problem.code is ErrorCode.UNSUPPORTED_VERSION and not add:
        return ErrorCode.NONE
    return ErrorCode.INVALID_TXN_STATE if problem.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else problem.code
