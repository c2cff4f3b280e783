"""Why a group rebalanced, on a real node: members that join, one that is killed, one that leaves, in groups of both protocols."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from tests.integration.client.conftest import SHORT_HEARTBEATS, SHORT_SESSIONS
from tests.support.apache_kafka import ApacheKafka
from tests.support.patience import patient
from tests.support.waiting import until_assigned

from busway import Admin, BrokerError, Consumer, NewTopic, ShareConsumer
from busway.admin.explanations import Rebalance
from busway.errors import UnsupportedByBroker
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow
SHORT = {
    "classic": {"session_timeout_ms": 500, "heartbeat_interval_ms": 100},
    "consumer": {},
}
DEADLINE_S = patient(30.0)


async def explained(admin: Admin, what: str) -> tuple[Sequence[Rebalance], Rebalance]:
    """All rebalances, and the last that was over for this reason; waits until there is one."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            rebalances = await admin.explain_group("g")
            over = [
                rebalance
                for rebalance in rebalances
                if rebalance.took_ms is not None and what in {why.what for why in rebalance.reasons}
            ]
            if over:
                return rebalances, over[-1]


async def command(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`busway groups explain …`."""
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "busway.cli", "groups", "explain", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "BUSWAY_BOOTSTRAP_SERVERS": bootstrap},
        check=False,
    )


@pytest.mark.parametrize("protocol", SHORT)
async def test_a_killed_members_partitions_go_to_the_other_and_it_is_told_why(protocol: str) -> None:
    """Two join, one is killed: its session is over, and what it had is described as moved to the other, which then leaves."""
    async with LocalCluster(properties={**SHORT_SESSIONS, **SHORT_HEARTBEATS}) as cluster:
        where = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "group_protocol": protocol}
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("orders", partitions=4)])
            with pytest.raises(BrokerError, match="nothing is known of a group g"):
                await admin.explain_group("g")
            first = Consumer("orders", client_id="stays", **where, **SHORT[protocol])
            killed = Consumer("orders", client_id="killed", **where, **SHORT[protocol])
            async with first:
                await until_assigned(4, first)
                await killed.start()
                await until_assigned(2, first, killed)
                members = {member.client_id: member.member_id for member in (await admin.describe_group("g")).members}
                _, joined = await explained(admin, "joined")
                assert {(why.what, why.client_id) for why in joined.reasons} >= {("joined", "killed")}
                # Members of the classic protocol give partitions up in one rebalance, and get them in the next.
                rebalances = (await admin.explain_group("g"))[1:]
                moves = [move for rebalance in rebalances for move in rebalance.moves]
                assert {move.before for move in moves} - {None} == {members["stays"]}
                assert {move.after for move in moves} - {None} == {members["killed"]}
                had = {(place.topic, place.partition) for place in killed.assignment()}
                await killed.abort()
                await until_assigned(4, first)
                _, lost = await explained(admin, "timed out")
                (why,) = [why for why in lost.reasons if why.what == "timed out"]
                assert (why.member_id, why.client_id) == (members["killed"], "killed")
                assert why.reason is not None
                assert "no heartbeat within its session" in why.reason
                assert {(move.topic, move.partition) for move in lost.moves} == had
                assert {(move.before, move.after) for move in lost.moves} == {(members["killed"], members["stays"])}
                assert lost.moves_complete
                assert lost.members == 1
                assert lost.kind == protocol
                assert lost.epoch > joined.epoch
                assert lost.took_ms is not None
                text = await command(cluster.bootstrap_servers, "g")
                assert text.returncode == 0, text.stderr
                assert f"{members['killed']} (client killed, 127.0.0.1) timed out: no heartbeat" in text.stdout
                topic, number = min(had)
                assert f"    {topic}-{number}: {members['killed']} -> {members['stays']}\n" in text.stdout
            rebalances = await admin.explain_group("g")
            assert [why.what for why in rebalances[-1].reasons] == ["left"]
            assert '"what": "timed out"' in (await command(cluster.bootstrap_servers, "g", "--json")).stdout
            await cluster.crash()
            await cluster.start()
            assert await admin.explain_group("g") == []
            assert (
                "no rebalance since its coordinator started" in (await command(cluster.bootstrap_servers, "g")).stdout
            )


@pytest.mark.java
async def test_apache_kafka_keeps_no_such_log(apache: ApacheKafka) -> None:
    """It is said what is needed."""
    async with Admin(apache.bootstrap_servers) as admin:
        with pytest.raises(UnsupportedByBroker, match="that takes a broker of Busway"):
            await admin.explain_group("anything")


async def test_a_share_group_is_refused_by_name() -> None:
    """Its members share every partition: there is nothing to explain."""
    async with LocalCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("jobs", 1)])
        async with (
            ShareConsumer("jobs", bootstrap_servers=cluster.bootstrap_servers, group_id="workers") as consumer,
            asyncio.timeout(DEADLINE_S),
        ):
            while "workers" not in {group.group_id for group in await admin.list_groups()}:
                await consumer.getmany(timeout_ms=20)
            with pytest.raises(BrokerError, match="workers is a share group, which is not balanced"):
                await admin.explain_group("workers")
