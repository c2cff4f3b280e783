"""librdkafka's transactions whose records expire before their partitions are added: the abort after the failed commit."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from busway import Admin, NewTopic
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from tests.support.apache_kafka import ApacheKafka
from tests.support.patience import patient
from tests.support.proxy import Fate, Proxy

pytestmark = [pytest.mark.foreign, pytest.mark.slow]
TRANSACTION_MS = 5_000
"""Also librdkafka's limit for the delivery of a transaction's records."""
CALL_S = patient(30.0)


@contextlib.asynccontextmanager
async def running(system: str) -> AsyncIterator[str]:
    """Return the address of a broker of Busway or Apache Kafka."""
    if system == "apache":
        kafka = ApacheKafka({"transaction.state.log.num.partitions": "1"})
        try:
            await asyncio.to_thread(kafka.start)
            yield kafka.bootstrap_servers
        finally:
            await asyncio.to_thread(kafka.stop)
    else:
        async with LocalCluster() as cluster:
            yield cluster.bootstrap_servers


async def outcome(call: Callable[..., object], *arguments: float) -> KafkaError | None:
    """Repeat a call of the producer while it is retriable; return its error."""
    while True:
        try:
            await asyncio.to_thread(call, *arguments)
        except KafkaException as problem:
            error: KafkaError = problem.args[0]
            if not error.retriable():
                return error
        else:
            return None


@pytest.mark.parametrize("system", ["busway", pytest.param("apache", marks=pytest.mark.java)])
async def test_an_abort_after_a_commit_that_never_reached_the_coordinator(system: str) -> None:
    """The coordinator knows the transaction before alone, which was committed: INVALID_TXN_STATE, which is fatal.

    librdkafka sends EndTxn since AddPartitionsToTxn, which was never answered, may have been executed.
    """
    async with running(system) as servers, Proxy(servers) as proxy, Admin(servers) as admin:
        await admin.create_topics([NewTopic("t", partitions=1)])
        producer = Producer(
            {
                "bootstrap.servers": proxy.address,
                "transactional.id": "x",
                "transaction.timeout.ms": TRANSACTION_MS,
                "socket.timeout.ms": 1_000,
                "log_level": 0,
            }
        )
        assert await outcome(producer.init_transactions, CALL_S) is None
        producer.begin_transaction()
        producer.produce("t", "first", partition=0)
        await asyncio.to_thread(producer.flush, CALL_S)
        assert await outcome(producer.commit_transaction, CALL_S) is None
        unanswered = proxy.strike(Fate.SWALLOW, ApiKey.ADD_PARTITIONS_TO_TXN)
        producer.begin_transaction()
        producer.produce("t", "second", partition=0)
        error = await outcome(producer.commit_transaction, CALL_S)
        assert error is not None
        assert error.txn_requires_abort(), error
        assert unanswered.count > 0
        error = await outcome(producer.abort_transaction, CALL_S)
        assert error is not None
        assert (error.name(), error.fatal()) == ("INVALID_TXN_STATE", True), error
