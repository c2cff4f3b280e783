"""Groups that the coordinator balances (KIP-848): what a member is given, gives up, loses, and whom it shares with."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.integration.client.conftest import Cluster
from tests.support.patience import patient, patient_ms
from tests.support.proxy import Fate, Proxy

from busway import Admin, App, BrokerError, Consumer, NewTopic, Producer, RebalanceListener, TopicPartition
from busway.admin.groups import GroupDescription
from busway.cluster.client import ClusterClient
from busway.consumer.coordinator import Coordinator
from busway.consumer.heartbeat_modern import leave
from busway.consumer.membership_modern import Identity
from busway_protocol.apis import ApiKey

pytestmark = pytest.mark.slow
WAIT_S = patient(30.0)
SESSION_S = 3.0
Partitions = tuple[TopicPartition, ...]


class Listener(RebalanceListener):
    """Its notifications, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    async def on_partitions_revoked(self, revoked: Partitions) -> None:
        """Partitions go."""
        self.events.append(("revoked", len(revoked)))

    async def on_partitions_assigned(self, assigned: Partitions) -> None:
        """Partitions come."""
        self.events.append(("assigned", len(assigned)))

    async def on_partitions_lost(self, lost: Partitions) -> None:
        """Partitions are gone."""
        self.events.append(("lost", len(lost)))


@pytest.fixture
async def proxy(balancing: Cluster) -> AsyncIterator[Proxy]:
    """The way to a broker."""
    async with Proxy(balancing.bootstrap_servers) as running:
        yield running


def options(cluster: Cluster, group: str, **more: Any) -> dict[str, Any]:
    """Of a member."""
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "group_protocol": "consumer",
        **more,
    }


async def topic_of(cluster: Cluster, topic: str, partitions: int, records: int = 0) -> None:
    """Make it, with so many records in each partition."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, partitions)])
    async with Producer(cluster.bootstrap_servers) as producer:
        for partition in range(partitions):
            for number in range(records):
                await producer.send(topic, b"%d" % number, partition=partition)


async def described(cluster: Cluster, group: str) -> GroupDescription:
    """The group as its coordinator knows it."""
    async with Admin(cluster.bootstrap_servers) as admin:
        return await admin.describe_group(group)


async def share(*members: Consumer, each: list[int]) -> None:
    """Return when they have so many partitions, and none has two owners; none has at any time."""
    async with asyncio.timeout(WAIT_S):
        while sorted(len(member.assignment()) for member in members) != sorted(each):
            await asyncio.gather(*(member.getmany(timeout_ms=10) for member in members))
            owned = [partition for member in members for partition in member.assignment()]
            assert len(owned) == len(set(owned))


async def test_who_comes_takes_nothing_that_stays(balancing: Cluster, topic: str, group: str) -> None:
    """Two of four partitions move, and back when the newcomer leaves; offsets go along."""
    await topic_of(balancing, topic, 4, records=10)
    listener = Listener()
    async with Consumer(topic, listener=listener, **options(balancing, group)) as first:
        await share(first, each=[4])
        first_generation = first.group_metadata().generation
        async with Consumer(topic, **options(balancing, group)) as second:
            await share(first, second, each=[2, 2])
            assert first.group_metadata().generation > first_generation
            await first.commit(dict.fromkeys(first.assignment(), 7))
            await second.commit(dict.fromkeys(second.assignment(), 7))
        await share(first, each=[4])
        assert listener.events == [("assigned", 4), ("revoked", 2), ("assigned", 2)]
        for number in range(4):
            committed_offset = await first.committed(TopicPartition(topic, number))
            assert committed_offset is not None
            assert committed_offset.offset in {7, 10}
    assert listener.events[-1] == ("revoked", 4)


async def test_it_is_the_protocol_by_default(balancing: Cluster, topic: str, group: str) -> None:
    """Unless an option is given that only the classic one has."""
    await topic_of(balancing, topic, 1)
    plain = {"bootstrap_servers": balancing.bootstrap_servers}
    async with Consumer(topic, group_id=group, **plain) as consumer:
        await share(consumer, each=[1])
        assert (await described(balancing, group)).kind == "consumer"
    async with Consumer(topic, group_id=f"{group}-classic", session_timeout_ms=patient_ms(10_000), **plain) as consumer:
        await share(consumer, each=[1])
        assert (await described(balancing, f"{group}-classic")).kind == "classic"


async def test_a_reader_that_computes_for_longer_than_the_session_stays_a_member(
    balancing: Cluster, topic: str, group: str
) -> None:
    """Its heartbeats go on in their thread, and its commit counts."""
    await topic_of(balancing, topic, 1, records=1)
    async with Consumer(topic, **options(balancing, group, enable_auto_commit=False)) as consumer:
        record = await consumer.getone()
        before = consumer.group_metadata()
        if balancing.is_apart:
            time.sleep(SESSION_S + 1)
        await consumer.commit({TopicPartition(topic, 0): record.offset + 1})
        assert consumer.group_metadata() == before


async def test_a_reader_that_never_comes_back_leaves_its_group(
    balancing: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Within max_poll_interval_ms others have its partitions; when it asks again, it is in again."""
    await topic_of(balancing, topic, 2, records=1)
    listener = Listener()
    async with Consumer(topic, listener=listener, **options(balancing, group, max_poll_interval_ms=500)) as gone:
        await share(gone, each=[2])
        async with Consumer(topic, **options(balancing, group)) as other:
            await share(other, each=[2])
            assert "max_poll_interval_ms=500" in caplog.text
            await share(gone, other, each=[1, 1])
    assert ("lost", 2) in listener.events


async def test_who_is_thrown_out_loses_its_partitions_and_joins_again(
    balancing: Cluster, topic: str, group: str
) -> None:
    """Under the id that it keeps (KIP-1082); what it commits from then on counts again."""
    await topic_of(balancing, topic, 2, records=1)
    listener = Listener()
    async with Consumer(topic, listener=listener, **options(balancing, group, enable_auto_commit=False)) as consumer:
        await share(consumer, each=[2])
        member_id = consumer.member_id()
        cluster = ClusterClient(balancing.bootstrap_servers, client_id="other")
        await leave(Coordinator(cluster, group), Identity(group=group, member_id=member_id, instance_id=None))
        await cluster.close()
        async with asyncio.timeout(WAIT_S):
            while listener.events != [("assigned", 2), ("lost", 2), ("assigned", 2)]:
                await consumer.getmany(timeout_ms=20)
        assert consumer.member_id() == member_id
        consumer.seek_to_beginning()  # what it was handed before is no longer its own to commit
        record = await consumer.getone()
        await consumer.commit({TopicPartition(topic, record.partition): record.offset + 1})


async def test_a_static_member_comes_back_to_its_partitions(balancing: Cluster, topic: str, group: str) -> None:
    """It leaves for a while: no other member is given them, and the others notice nothing."""
    await topic_of(balancing, topic, 2)
    listener = Listener()
    async with Consumer(topic, listener=listener, **options(balancing, group)) as other:
        static = options(balancing, group, group_instance_id="one")
        async with Consumer(topic, **static) as first:
            await share(other, first, each=[1, 1])
            had = first.assignment()
            before = list(listener.events)
        async with Consumer(topic, **static) as again:
            await share(other, again, each=[1, 1])
            assert again.assignment() == had
        assert listener.events == before


async def test_a_static_member_that_was_killed_is_let_in_when_its_session_has_ended(
    balancing: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then its successor waits and says why."""
    await topic_of(balancing, topic, 1)
    static = options(balancing, group, group_instance_id="one")
    killed = Consumer(topic, **static)
    await killed.start()
    await share(killed, each=[1])
    await killed.abort()
    async with Consumer(topic, **static) as again:
        await share(again, each=[1])
    assert "another member is one" in caplog.text


async def test_a_subscription_changes(balancing: Cluster, topic: str, group: str) -> None:
    """To other topics, to a pattern for the coordinator, which sees new topics itself, and back."""
    await topic_of(balancing, topic, 1)
    await topic_of(balancing, f"{topic}-b", 2)
    async with Consumer(topic, **options(balancing, group)) as consumer:
        await share(consumer, each=[1])
        await consumer.subscribe([f"{topic}-b"])
        await share(consumer, each=[2])
        await consumer.subscribe(server_pattern=f"{topic}.*")
        await share(consumer, each=[3])
        await consumer.subscribe([topic])
        await share(consumer, each=[1])
        assert consumer.assignment() == {TopicPartition(topic, 0)}


async def test_new_partitions_are_found_by_the_coordinator(balancing: Cluster, topic: str, group: str) -> None:
    """Long before the client would look at its metadata again."""
    await topic_of(balancing, topic, 1)
    async with Consumer(topic, **options(balancing, group)) as consumer:
        await share(consumer, each=[1])
        async with Admin(balancing.bootstrap_servers) as admin:
            await admin.create_partitions({topic: 3})
        await share(consumer, each=[3])


@pytest.mark.parametrize("answers", [True, False], ids=["answers", "requests"])
async def test_a_heartbeat_that_is_lost_is_no_rebalance(
    answers: bool, proxy: Proxy, balancing: Cluster, topic: str, group: str
) -> None:
    """Wherever it was lost: in a join, in a step that was acknowledged, in between."""
    await topic_of(balancing, topic, 4, records=1)
    listener = Listener()
    consumer_options = {**options(balancing, group), "bootstrap_servers": proxy.address, "listener": listener}
    for _ in range(2):
        proxy.strike(Fate.CUT, ApiKey.CONSUMER_GROUP_HEARTBEAT, answers=answers, times=1)
    async with Consumer(topic, **consumer_options) as first:
        await share(first, each=[4])
        proxy.strike(Fate.CUT, ApiKey.CONSUMER_GROUP_HEARTBEAT, answers=answers, times=1)
        async with Consumer(topic, **options(balancing, group)) as second:
            await share(first, second, each=[2, 2])
            strike = proxy.strike(Fate.CUT, ApiKey.CONSUMER_GROUP_HEARTBEAT, answers=answers, times=1)
            await strike.happened.wait()
            await first.commit(dict.fromkeys(first.assignment(), 1))
            await share(first, second, each=[2, 2])
    assert listener.events == [("assigned", 4), ("revoked", 2), ("revoked", 2)]


async def test_commits_go_on_while_epochs_change(balancing: Cluster, topic: str, group: str) -> None:
    """A commit under an epoch that has passed is made under the next; none of the partitions that stay are lost for it."""
    await topic_of(balancing, topic, 2, records=1)
    kept = TopicPartition(topic, 0)
    async with Consumer(topic, **options(balancing, group, enable_auto_commit=False)) as first:
        await share(first, each=[2])
        for _ in range(3):
            async with Consumer(topic, **options(balancing, group)) as second:
                async with asyncio.timeout(WAIT_S):
                    while len(second.assignment()) != 1:
                        await asyncio.gather(first.getmany(timeout_ms=5), second.getmany(timeout_ms=5))
                        if kept in first.assignment():
                            await first.commit({kept: 1})
            await share(first, each=[2])


async def test_offsets_are_sent_to_a_transaction_in_the_members_epoch(
    balancing: Cluster, topic: str, group: str
) -> None:
    """And refused for an epoch that has passed."""
    await topic_of(balancing, topic, 2, records=1)
    async with (
        Consumer(topic, **options(balancing, group, enable_auto_commit=False)) as consumer,
        Producer(balancing.bootstrap_servers, transactional_id=f"x-{topic}") as producer,
    ):
        await share(consumer, each=[2])
        before = consumer.group_metadata()
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, before)
        async with asyncio.timeout(WAIT_S):  # until its marker is there
            while (committed_offset := await consumer.committed(TopicPartition(topic, 0))) is None:
                await consumer.getmany(timeout_ms=10)
        assert committed_offset.offset == 1
        async with Consumer(topic, **options(balancing, group)) as other:
            await share(consumer, other, each=[1, 1])
            assert consumer.group_metadata().generation > before.generation


@pytest.mark.parametrize("older_first", [True, False], ids=["roll-out", "roll-back"])
async def test_members_of_both_protocols_share_one_group(
    older_first: bool, balancing: Cluster, topic: str, group: str
) -> None:
    """A deployment rolls from one to the other while it runs: all partitions have one owner, all records are read."""
    await topic_of(balancing, topic, 4, records=5)
    both: list[dict[str, Any]] = [
        {"group_protocol": "classic", "heartbeat_interval_ms": 50, "session_timeout_ms": patient_ms(10_000)},
        {"group_protocol": "consumer"},
    ]
    if not older_first:
        both.reverse()
    async with Consumer(topic, **{**options(balancing, group), **both[0]}) as first:
        await share(first, each=[4])
        async with Consumer(topic, **{**options(balancing, group), **both[1]}) as second:
            await share(first, second, each=[2, 2])
            assert (await described(balancing, group)).kind == "consumer"
            await first.commit(dict.fromkeys(first.assignment(), 5))
            await second.commit(dict.fromkeys(second.assignment(), 5))
        await share(first, each=[4])
        assert (await described(balancing, group)).kind == ("classic" if older_first else "consumer")


async def test_what_the_coordinator_refuses_is_told(balancing: Cluster, topic: str, group: str) -> None:
    """An assignor that it does not have."""
    await topic_of(balancing, topic, 1)
    async with Consumer(topic, **options(balancing, group, group_remote_assignor="fair")) as consumer:
        with pytest.raises(BrokerError, match="fair is not supported"):
            await consumer.getone()


async def test_a_member_that_starts_and_stops_at_once_leaves_nothing_behind(
    balancing: Cluster, topic: str, group: str
) -> None:
    """Its farewell comes behind its join, however fast it is."""
    await topic_of(balancing, topic, 1)
    for _ in range(5):
        async with Consumer(topic, **options(balancing, group)):
            await asyncio.sleep(0)
    async with Admin(balancing.bootstrap_servers) as admin:
        groups = {listed.group_id: listed.state for listed in await admin.list_groups()}
    assert groups.get(group, "Empty") == "Empty"


async def test_apps_share_as_they_do_in_a_classic_group(balancing: Cluster, topic: str, group: str) -> None:
    """One comes while the other handles: every record is handled, and their offsets are committed."""
    seen: set[int] = set()

    def app() -> App:
        made = App(group, balancing.bootstrap_servers, commit_interval_s=0.1)
        things = made.topic(topic, value=int, format="json", partitions=4)

        @made.subscribe(things)
        async def handle(value: int) -> None:
            seen.add(value)

        return made

    first, other = app(), app()
    async with first, Producer(balancing.bootstrap_servers) as producer, asyncio.timeout(WAIT_S):
        for number in range(200):
            await producer.send(topic, b"%d" % number, partition=number % 4)
        async with other:
            assert first.worker is not None
            assert other.worker is not None
            while {len(member.worker.consumer.assignment()) for member in (first, other) if member.worker} != {2}:
                await asyncio.sleep(0.02)
            for number in range(200, 400):
                await producer.send(topic, b"%d" % number, partition=number % 4)
            while len(seen) < 400:
                await asyncio.sleep(0.02)
    async with Admin(balancing.bootstrap_servers) as admin:
        committed = await admin.list_group_offsets(group)
        assert (await admin.describe_group(group)).kind == "consumer"
    assert {
        partition.partition: committed_offset.offset for partition, committed_offset in committed.items()
    } == dict.fromkeys(range(4), 100)
