"""A group whose members all can share cooperatively does; members that cannot are welcome all the same."""

import asyncio
from typing import Any

import pytest
from tests.integration.client.conftest import Cluster
from tests.support.patience import patient, patient_ms

from busway import Admin, Consumer, NewTopic, RebalanceListener, TopicPartition

pytestmark = pytest.mark.slow
FAST: dict[str, Any] = {"heartbeat_interval_ms": 20, "session_timeout_ms": patient_ms(10_000)}
OLDER = ("range", "cooperative-sticky")
"""The default of Java's consumers, and of Busway's until 0.1."""


class Listener(RebalanceListener):
    """What it had to give up."""

    def __init__(self) -> None:
        self.revoked: list[int] = []

    async def on_partitions_revoked(self, revoked: tuple[TopicPartition, ...]) -> None:
        """Partitions go."""
        self.revoked.append(len(revoked))


async def topic_of(cluster: Cluster, topic: str, partitions: int) -> None:
    """Make it."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, partitions)])


async def share(*members: Consumer, each: list[int]) -> None:
    """Return when they have so many partitions, and none has two owners."""
    async with asyncio.timeout(patient(20)):
        while sorted(len(member.assignment()) for member in members) != sorted(each):
            await asyncio.gather(*(member.getmany(timeout_ms=10) for member in members))
    owned = [partition for member in members for partition in member.assignment()]
    assert len(owned) == len(set(owned))


async def test_who_comes_takes_nothing_that_stays(cluster: Cluster, topic: str, group: str) -> None:
    """By default: of four partitions two move, and the other two are read on."""
    await topic_of(cluster, topic, 4)
    listener = Listener()
    options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group, **FAST}
    async with Consumer(topic, listener=listener, **options) as first:
        await share(first, each=[4])
        async with Consumer(topic, **options) as second:
            await share(first, second, each=[2, 2])
            assert listener.revoked == [2]
            assert first._group is not None
            assert first._group.membership.protocol == "cooperative-sticky"
        await share(first, each=[4])
        assert listener.revoked == [2]


@pytest.mark.parametrize("newer_first", [True, False], ids=["roll-back", "roll-out"])
@pytest.mark.parametrize("older", [OLDER, ("range",)], ids=["older-default", "range-only"])
async def test_members_of_an_earlier_release_share_with_those_of_this_one(
    older: tuple[str, ...], newer_first: bool, cluster: Cluster, topic: str, group: str
) -> None:
    """A deployment rolls member by member, in either direction; no partition has two owners, none is left over."""
    await topic_of(cluster, topic, 4)
    options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group, **FAST}
    strategies: list[dict[str, Any]] = [{}, {"partition_assignment_strategy": older}]
    if not newer_first:
        strategies.reverse()
    async with Consumer(topic, **options, **strategies[0]) as first:
        await share(first, each=[4])
        async with Consumer(topic, **options, **strategies[1]) as second:
            await share(first, second, each=[2, 2])
        await share(first, each=[4])
