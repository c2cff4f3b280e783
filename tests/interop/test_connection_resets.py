"""Foreign members whose connections are reset between heartbeats: they stay in their generation, and none is fenced."""

import asyncio

import pytest

from busway import Admin, NewTopic
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from tests.interop.clients import LONG_SESSION_MS, SESSION_VARIABLE, Client, FranzGo, JavaConsole, KafkaJs, Sarama
from tests.interop.members import group_of
from tests.support.patience import patient
from tests.support.proxy import Proxy

pytestmark = [pytest.mark.foreign, pytest.mark.slow]
PATIENCE_S = patient(60.0)
OWN = {"cached metadata has changed"}
"""Reasons of a client's own: Java forgets all metadata when its connections are all reset at once, and its leader then joins again."""
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


async def heartbeats(proxy: Proxy, count: int) -> None:
    """Return when so many heartbeats have come from now on."""
    proxy.requests.clear()
    async with asyncio.timeout(PATIENCE_S):
        await proxy.asked(ApiKey.HEARTBEAT, count)


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(JavaConsole(), id="java", marks=pytest.mark.java),
        pytest.param(FranzGo("franz-go"), id="franz-go"),
        pytest.param(KafkaJs("kafkajs"), id="kafkajs"),
        pytest.param(Sarama("sarama"), id="sarama"),
    ],
)
async def test_connections_that_are_reset_fence_no_live_member(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """With heartbeats every 3 s and the default grace: cut before the second heartbeat, and twice later."""
    monkeypatch.setenv(SESSION_VARIABLE, str(LONG_SESSION_MS))
    async with (
        LocalCluster(properties=SETTINGS) as cluster,
        Proxy(cluster.bootstrap_servers) as proxy,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        await admin.create_topics([NewTopic("orders", partitions=2)])
        with group_of([(client, client.member_command(proxy.address, "orders", "g"))]):
            await heartbeats(proxy, 1)
            before = await admin.explain_group("g")
            (member,) = (await admin.describe_group("g")).members
            for count in (2, 2, 2):
                proxy.cut()
                await heartbeats(proxy, count)
            since = (await admin.explain_group("g"))[len(before) :]
            assert all(
                why.what == "joined again" and why.reason in OWN for rebalance in since for why in rebalance.reasons
            ), since
            assert [member.member_id for member in (await admin.describe_group("g")).members] == [member.member_id]
