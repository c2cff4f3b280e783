"""Transactions by requests of librdkafka's versions, while the coordinator's node is killed right after its answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.integration.test_coordinators_of_three_nodes import kill_leader
from tests.integration.test_three_nodes import asked, created, creation
from tests.support.patience import patient, patient_ms
from tests.support.waiting import until

from busway.net.connection import Connection
from busway_bus.kernel.topics import TRANSACTIONS_TOPIC
from busway_bus.metadata.image import NO_LEADER
from busway_bus.testing.local_nodes import LocalNodes
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import FindCoordinatorRequest
from busway_protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

pytestmark = pytest.mark.slow
TRANSACTIONAL_ID = "x"
END_VERSION = 3
"""Before KIP-890: the epoch stays, and partitions are added by AddPartitionsToTxn."""


@asynccontextmanager
async def coordinator(nodes: LocalNodes) -> AsyncIterator[Connection]:
    """A connection to the node that coordinates all transactions, once each running node names the same."""

    def leaders() -> set[int]:
        topics = [node.services.image.topics.get(TRANSACTIONS_TOPIC) for node in nodes.nodes.values()]
        return {NO_LEADER if topic is None else topic.partitions[0].leader for topic in topics}

    await until(lambda: len(leaders()) == 1 and leaders() <= nodes.nodes.keys())
    host, _, port = nodes.nodes[leaders().pop()].bootstrap_servers.rpartition(":")
    connection = Connection(host, int(port), client_id="test", timeout_s=patient(10))
    await connection.connect()
    try:
        yield connection
    finally:
        connection.close()


async def added(connection: Connection, identity: tuple[int, int]) -> int:
    """Add a partition to the transaction; return the error code."""
    response = await connection.request(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=identity[0],
            v3_and_below_producer_epoch=identity[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        at_most=3,
    )
    return response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code


async def ended(nodes: LocalNodes, identity: tuple[int, int], *, commit: bool) -> int:
    """End the transaction at the present coordinator, after what passes has passed; return the error code."""
    codes: list[int] = []

    async def settled() -> bool:
        async with coordinator(nodes) as connection:
            request = EndTxnRequest(
                transactional_id=TRANSACTIONAL_ID,
                producer_id=identity[0],
                producer_epoch=identity[1],
                committed=commit,
            )
            codes.append((await connection.request(request, at_most=END_VERSION)).error_code)
        passing = {
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        }
        return codes[-1] not in passing

    await until(settled)
    return codes[-1]


async def begun(nodes: LocalNodes) -> tuple[int, int]:
    """The identity of a new transactional producer."""
    assert await created(nodes, 1, creation("t", partitions=1)) == ErrorCode.NONE
    await asked(nodes, 1, FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTIONAL_ID]))
    request = InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=patient_ms(60_000))
    response = InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1)

    async def answered() -> bool:
        nonlocal response
        async with coordinator(nodes) as connection:
            response = await connection.request(request, at_most=4)
        return response.error_code == ErrorCode.NONE

    await until(answered)
    return response.producer_id, response.producer_epoch


async def test_an_acknowledged_partition_is_known_to_the_next_coordinator() -> None:
    """An end that it refuses as INVALID_TXN_STATE followed an AddPartitionsToTxn that never arrived, as in Kafka."""
    async with LocalNodes() as nodes:
        identity = await begun(nodes)
        async with coordinator(nodes) as connection:
            assert await added(connection, identity) == ErrorCode.NONE
        assert await ended(nodes, identity, commit=True) == ErrorCode.NONE
        async with coordinator(nodes) as connection:
            while (code := await added(connection, identity)) == ErrorCode.CONCURRENT_TRANSACTIONS:
                pass
            assert code == ErrorCode.NONE
            await kill_leader(nodes, TRANSACTIONS_TOPIC)
        assert await ended(nodes, identity, commit=False) == ErrorCode.NONE
        assert await ended(nodes, identity, commit=True) == ErrorCode.INVALID_TXN_STATE
