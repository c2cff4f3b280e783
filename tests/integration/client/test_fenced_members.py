"""Members whose process is gone are fenced in seconds; a connection that is lost and made again changes nothing."""

import asyncio
import threading
from collections.abc import Iterable

import aiokafka
import confluent_kafka
import pytest
from tests.integration.client.conftest import SHORT_HEARTBEATS
from tests.support.patience import patient
from tests.support.proxy import Proxy
from tests.support.waiting import until, until_assigned

from busway import Admin, Consumer, NewTopic
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey

pytestmark = pytest.mark.slow
GRACE = {"group.disconnect.grace.ms": "300"}
LONG_SESSIONS = {"group.consumer.session.timeout.ms": "45000", "group.consumer.max.session.timeout.ms": "60000"}
OPTIONS = {"classic": {"session_timeout_ms": 45_000, "heartbeat_interval_ms": 100}, "consumer": {}}
BEATS = {"classic": ApiKey.HEARTBEAT, "consumer": ApiKey.CONSUMER_GROUP_HEARTBEAT}
PATIENCE_S = patient(30.0)
"""Less than a session: what is waited for here does not come from the end of one."""


async def heartbeats(proxy: Proxy, beat: ApiKey, consumer: Consumer) -> None:
    """Poll until a member has sent so many from now on that its interval is known."""
    proxy.requests.clear()
    async with asyncio.timeout(PATIENCE_S):
        while proxy.requests.count(beat) < 3:
            await consumer.getmany(timeout_ms=20)


async def reasons(admin: Admin) -> list[tuple[str, str]]:
    """What the group's rebalances say of its members: what happened, client id."""
    return [
        (why.what, why.client_id or "") for rebalance in await admin.explain_group("g") for why in rebalance.reasons
    ]


@pytest.mark.parametrize("protocol", OPTIONS)
async def test_a_killed_member_is_fenced_and_a_static_one_is_not(protocol: str) -> None:
    """Long before the session ends; `busway groups explain` says why."""
    properties = {**SHORT_HEARTBEATS, **LONG_SESSIONS, **GRACE}
    async with (
        LocalCluster(properties=properties) as cluster,
        Proxy(cluster.bootstrap_servers) as proxy,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        await admin.create_topics([NewTopic("orders", partitions=6)])
        where = {"bootstrap_servers": cluster.bootstrap_servers, "group_protocol": protocol, **OPTIONS[protocol]}
        async with Consumer("orders", client_id="stays", group_id="g", **where) as stays:
            static = Consumer("orders", group_id="s", group_instance_id="static-1", **where)
            killed = Consumer(
                "orders", client_id="killed", group_id="g", **{**where, "bootstrap_servers": proxy.address}
            )
            await static.start()
            await until_assigned(6, static)
            await killed.start()
            await until_assigned(3, stays, killed)
            await heartbeats(proxy, BEATS[protocol], killed)
            await static.abort()
            await killed.abort()
            await until_assigned(6, stays)
            assert ("was fenced", "killed") in await reasons(admin)
            assert [member.instance_id for member in (await admin.describe_group("s")).members] == ["static-1"]


@pytest.mark.parametrize("protocol", OPTIONS)
async def test_a_lost_connection_fences_no_live_member(protocol: str) -> None:
    """All connections are cut again and again, each time after the member has sent heartbeats; it stays in its generation."""
    properties = {**SHORT_HEARTBEATS, **LONG_SESSIONS, "group.disconnect.grace.ms": "3000"}
    async with (
        LocalCluster(properties=properties) as cluster,
        Proxy(cluster.bootstrap_servers) as proxy,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        await admin.create_topics([NewTopic("orders", partitions=2)])
        options = {"group_id": "g", "group_protocol": protocol, **OPTIONS[protocol]}
        async with Consumer("orders", bootstrap_servers=proxy.address, **options) as consumer:
            await until_assigned(2, consumer)
            before = await reasons(admin)
            for _ in range(4):
                proxy.cut()
                await heartbeats(proxy, BEATS[protocol], consumer)
            assert await reasons(admin) == before


def is_answered(consumer: Consumer) -> bool:
    """Whether the member has a connection for heartbeats, and waits for no response on it."""
    assert consumer._group is not None
    cluster = consumer._group._heartbeat_thread._cluster
    connections = [] if cluster is None else list(cluster._connections.items())
    return any(purpose and each.open for (_, purpose), each in connections) and not any(
        each.waiting for _, each in connections
    )


async def test_a_heartbeat_follows_at_once_after_a_lost_connection() -> None:
    """Not when the next one is due: the broker may take the member for dead before."""
    seldom = ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms")
    sessions = ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms")
    async with (
        LocalCluster(properties=dict.fromkeys(seldom, "600000") | dict.fromkeys(sessions, "1800000")) as cluster,
        Proxy(cluster.bootstrap_servers) as proxy,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        await admin.create_topics([NewTopic("orders", partitions=2)])
        async with Consumer("orders", bootstrap_servers=proxy.address, group_id="g") as consumer:
            await until_assigned(2, consumer)
            for _ in range(2):
                await until(lambda: is_answered(consumer))  # its retry would be no sign
                proxy.requests.clear()
                proxy.cut()
                async with asyncio.timeout(PATIENCE_S):
                    await proxy.asked(ApiKey.CONSUMER_GROUP_HEARTBEAT)


@pytest.mark.variant
async def test_aiokafka_and_librdkafka_outlive_lost_connections() -> None:
    """With their default heartbeats of 3 s: cut between two of them, they stay in their generations."""
    async with (
        LocalCluster(properties={"group.initial.rebalance.delay.ms": "0"}) as cluster,
        Proxy(cluster.bootstrap_servers) as proxy,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        await admin.create_topics([NewTopic("orders", partitions=2)])
        reader = aiokafka.AIOKafkaConsumer("orders", bootstrap_servers=proxy.address, group_id="a")
        settings = {"bootstrap.servers": proxy.address, "group.id": "l", "log_level": 0}
        polled = confluent_kafka.Consumer(settings)
        over = threading.Event()
        polling = asyncio.create_task(asyncio.to_thread(poll, polled, over))
        try:
            async with asyncio.timeout(PATIENCE_S * 2), reader:
                while not await settled(admin, ("a", "l")):
                    await reader.getmany(timeout_ms=50)
                before = [await admin.explain_group(group) for group in ("a", "l")]
                for _ in range(2):
                    proxy.cut()
                    proxy.requests.clear()
                    while proxy.requests.count(ApiKey.HEARTBEAT) < 4:
                        await reader.getmany(timeout_ms=50)
                assert [await admin.explain_group(group) for group in ("a", "l")] == before
        finally:
            over.set()
            await polling


def poll(consumer: confluent_kafka.Consumer, over: threading.Event) -> None:
    """As a program of librdkafka does."""
    consumer.subscribe(["orders"])
    while not over.is_set():
        consumer.poll(0.05)
    consumer.close()


async def settled(admin: Admin, groups: Iterable[str]) -> bool:
    """Whether each group has a member, and is stable."""
    listed = {group.group_id: group.state for group in await admin.list_groups()}
    return all(listed.get(group, "").lower() == "stable" for group in groups)
