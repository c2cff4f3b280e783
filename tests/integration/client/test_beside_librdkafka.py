"""Faults of a broker, met by our consumer and by librdkafka's at once: ours gets no more notifications than librdkafka."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from confluent_kafka import Consumer as Librdkafka
from tests.support.patience import patient
from tests.support.proxy import Fate, Proxy

from busway import Consumer, Producer, RebalanceListener
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey

pytestmark = pytest.mark.slow
SESSION_MS = 6_000
HEARTBEAT_MS = 100


class Ours(RebalanceListener):
    """Counts the notifications of our consumer."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def on_partitions_assigned(self, assigned: object) -> None:
        """Partitions came."""
        self.events.append("assigned")

    async def on_partitions_revoked(self, revoked: object) -> None:
        """Partitions go."""
        self.events.append("revoked")

    async def on_partitions_lost(self, lost: object) -> None:
        """Partitions are gone."""
        self.events.append("lost")


class Theirs:
    """librdkafka's consumer in a thread, counting likewise."""

    def __init__(self, address: str, topic: str, group: str) -> None:
        self.events: list[str] = []
        self.values: list[bytes | None] = []
        self._consumer = Librdkafka(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._consumer.subscribe(
            [topic], on_assign=self._heard("assigned"), on_revoke=self._heard("revoked"), on_lost=self._heard("lost")
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _heard(self, event: str) -> Callable[[Any, Any], None]:
        return lambda consumer, partitions: self.events.append(event)

    def _poll(self) -> None:
        while not self._stopped.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.values.append(message.value())
        self._consumer.close()

    async def close(self) -> None:
        """Leave the group."""
        self._stopped.set()
        await asyncio.to_thread(self._thread.join)


@pytest.fixture
async def node() -> AsyncIterator[LocalCluster]:
    """A node with sessions as short as the test's."""
    async with LocalCluster(properties={"group.min.session.timeout.ms": "100"}) as running:
        yield running


@pytest.mark.parametrize("fault", ["restarted", "cut", "frozen"])
async def test_a_fault_that_passes_is_no_rebalance(fault: str, node: LocalCluster, topic: str, group: str) -> None:
    """Restart, cut connections, silence: a heartbeat or more goes wrong, and afterwards both read on in the same generation."""
    ours = Ours()
    async with Producer(node.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"first")
    async with (
        Proxy(node.bootstrap_servers) as proxy_of_first,
        Proxy(node.bootstrap_servers) as other,
        Consumer(
            topic,
            bootstrap_servers=proxy_of_first.address,
            group_id=group,
            listener=ours,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        ) as consumer,
        asyncio.timeout(patient(60)),
    ):
        theirs = Theirs(other.address, topic, f"{group}-theirs")
        try:
            assert (await consumer.getone()).value == b"first"
            while theirs.values != [b"first"]:
                await asyncio.sleep(0.01)
            assert (ours.events, theirs.events) == (["assigned"], ["assigned"])
            await _strike(fault, node, [proxy_of_first, other])
            async with Producer(node.bootstrap_servers) as producer:
                await producer.send_and_wait(topic, b"second")
            assert (await consumer.getone()).value == b"second"
            while theirs.values != [b"first", b"second"]:
                await asyncio.sleep(0.01)
            for proxy in (proxy_of_first, other):  # both have been heard since
                await proxy.asked(ApiKey.HEARTBEAT, proxy.requests.count(ApiKey.HEARTBEAT) + 2)
            assert len(ours.events) <= len(theirs.events)
            assert ours.events == ["assigned"]
        finally:
            await theirs.close()


async def _strike(fault: str, node: LocalCluster, proxies: list[Proxy]) -> None:
    for proxy in proxies:
        await proxy.asked(ApiKey.HEARTBEAT)
    if fault == "restarted":
        await node.crash()
        for proxy in proxies:
            await proxy.refuse()
        await asyncio.gather(*(_missed(proxy) for proxy in proxies))
        await node.start()
        for proxy in proxies:
            await proxy.accept()
    elif fault == "cut":
        strikes = [proxy.strike(Fate.CUT, ApiKey.HEARTBEAT, answers=True, times=3) for proxy in proxies]
        while any(strike.count < 3 for strike in strikes):
            await asyncio.sleep(0.01)
    else:
        strikes = [proxy.strike(Fate.HOLD, ApiKey.HEARTBEAT) for proxy in proxies]
        for strike in strikes:
            await strike.happened.wait()
        await asyncio.gather(*(_missed(proxy) for proxy in proxies))
        for strike in strikes:
            strike.lift()


async def _missed(proxy: Proxy) -> None:
    """Some heartbeats' time passes: a client that is refused cannot be waited for otherwise."""
    await asyncio.sleep(5 * HEARTBEAT_MS / 1000)
