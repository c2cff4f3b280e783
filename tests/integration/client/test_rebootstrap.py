"""A client whose known brokers are all gone starts over from its bootstrap server (KIP-899, KIP-1102)."""

import asyncio
from typing import Any

import pytest
from tests.integration.client.test_broker_away import Listener
from tests.support.patience import patient, patient_ms
from tests.support.proxy import Fate, Proxy

from busway import Admin, Consumer, Producer
from busway.errors import ConnectionFailed, DeliveryFailed
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode

pytestmark = pytest.mark.slow


class Bootstrap(Proxy):
    """An address that stays: it advertises the broker's own, as a load balancer does."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.advertised = target
        self.edits = {ApiKey.METADATA: self._advertise, ApiKey.FIND_COORDINATOR: self._advertise}

    def _advertise(self, answer: Any) -> None:
        host, _, port = self.advertised.rpartition(":")
        brokers = getattr(answer, "brokers", None) or getattr(answer, "coordinators", None) or [answer]
        for broker in brokers:
            broker.host, broker.port = host, int(port)


async def moved(first: LocalCluster, bootstrap: Bootstrap) -> LocalCluster:
    """The same cluster at another address, behind the same bootstrap server."""
    await bootstrap.refuse()
    await first.crash()
    second = LocalCluster(first.data_dir)
    await second.start()
    bootstrap.target = bootstrap.advertised = second.bootstrap_servers
    await bootstrap.accept()
    return second


async def test_clients_go_on_with_a_cluster_that_came_back_elsewhere(node: LocalCluster, topic: str) -> None:
    """Each record once, and no rebalance."""
    listener = Listener()
    async with Bootstrap(node.bootstrap_servers) as bootstrap:
        readers: dict[str, Any] = {
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "allow_auto_create_topics": True,
            "listener": listener,
        }
        async with (
            asyncio.timeout(patient(60)),
            Producer(bootstrap.address) as producer,
            Admin(bootstrap.address) as admin,
            Consumer(topic, bootstrap_servers=bootstrap.address, **readers) as consumer,
        ):
            await producer.send_and_wait(topic, b"before", partition=0)
            assert (await consumer.getone()).value == b"before"
            second = await moved(node, bootstrap)
            try:
                await producer.send_and_wait(topic, b"after", partition=0)
                assert (await consumer.getone()).value == b"after"
                await consumer.commit()
                assert topic in await admin.list_topics()
                assert listener.events == ["assigned"]
            finally:
                await consumer.abort()
                await second.stop()


async def test_a_client_without_recovery_only_tries_known_brokers(node: LocalCluster, topic: str) -> None:
    """The error names the option."""
    async with Bootstrap(node.bootstrap_servers) as bootstrap:
        options: dict[str, Any] = {"metadata_recovery_strategy": "none", "delivery_timeout_ms": 300}
        async with Producer(bootstrap.address, **options) as producer:
            await producer.send_and_wait(topic, b"before")
            second = await moved(node, bootstrap)
            try:
                with pytest.raises(DeliveryFailed):
                    await producer.send_and_wait(topic, b"lost")
                with pytest.raises(ConnectionFailed, match="metadata_recovery_strategy is none"):
                    await producer._cluster.refresh()
            finally:
                await second.stop()
    with pytest.raises(ValueError, match="metadata_recovery_strategy: 'never'"):
        Producer("localhost:1", metadata_recovery_strategy="never")
    with pytest.raises(ValueError, match="metadata_recovery_strategy: 'never'"):
        Admin("localhost:1", metadata_recovery_strategy="never")  # type: ignore[arg-type]


async def test_a_broker_may_require_that_the_client_starts_over(node: LocalCluster, topic: str) -> None:
    """REBOOTSTRAP_REQUIRED, which a proxy in front of clusters uses to move its clients."""
    async with (
        Proxy(node.bootstrap_servers) as known,
        Bootstrap(known.address) as bootstrap,
        Producer(bootstrap.address) as producer,
        asyncio.timeout(patient(20)),
    ):
        await producer.send_and_wait(topic, b"before")

        def refuse(answer: Any) -> None:
            answer.error_code = ErrorCode.REBOOTSTRAP_REQUIRED
            answer.brokers, answer.topics = [], []

        known.edits[ApiKey.METADATA] = refuse
        bootstrap.target = bootstrap.advertised = node.bootstrap_servers
        bootstrap.cut()
        await producer._cluster.refresh()
        assert set(producer._cluster.metadata.brokers.values()) == {
            ("127.0.0.1", int(node.bootstrap_servers.rpartition(":")[2]))
        }
        before = len(known.requests)
        await producer.send_and_wait(topic, b"after")
        assert len(known.requests) == before


async def test_known_brokers_that_give_no_metadata_are_given_up_after_the_trigger(
    node: LocalCluster, topic: str
) -> None:
    """They take connections and requests, and answer none."""
    async with (
        Proxy(node.bootstrap_servers) as known,
        Bootstrap(known.address) as bootstrap,
        Producer(
            bootstrap.address, request_timeout_ms=patient_ms(200), metadata_recovery_rebootstrap_trigger_ms=0
        ) as producer,
        asyncio.timeout(patient(20)),
    ):
        await producer.send_and_wait(topic, b"before")
        known.strike(Fate.SWALLOW)
        bootstrap.target = bootstrap.advertised = node.bootstrap_servers
        bootstrap.cut()
        await producer.send_and_wait(topic, b"after")
