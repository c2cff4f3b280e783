"""Consumer groups that the broker balances: over a crash of the node, and with a client that others wrote."""

import asyncio
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.broker.consumer_groups_scenarios import SETTINGS, member, until
from tests.integration.broker.groups_probe import run_against
from tests.support.patience import patient

from busway_bus.groups.modern.requests import ConsumerLimits
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow
WAIT_S = patient(30.0)


async def test_members_go_on_after_a_crash() -> None:
    """They keep epochs and partitions, and one that was asked to give up still is."""
    async with LocalCluster(properties=SETTINGS) as cluster:
        async with run_against(cluster.bootstrap_servers, "g") as run:
            first, second = await member(run, "a", "g"), await member(run, "b", "g")
            await first.join()
            await first.confirm("has it")
            await second.join()
            await first.beat("is told to give up")
        await cluster.crash()
        await cluster.start()
        async with run_against(cluster.bootstrap_servers, "g") as run:
            for peer in (first, second):
                peer.connection = await run.connect(peer.name)
            assert not (await second.beat("waits yet")).assignment
            assert not (await first.confirm("has given up")).error_code
            given = (await second.beat("gets it")).assignment
            assert [topic.partitions for topic in given.topic_partitions] == [[1]]
            described = await until(run, "g", lambda group: group.group_state == "Stable")
            assert [(member.member_id, member.member_epoch) for member in described.members] == [("g-a", 3), ("g-b", 3)]


class Reader:
    """A consumer of librdkafka in a thread of its own."""

    def __init__(self, bootstrap: str, topics: list[str], protocol: str) -> None:
        self.assigned: list[int] = []
        self.read: list[bytes] = []
        self.changed = threading.Condition()
        self._stop = False
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "g",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
            }
        )
        self._topics = topics
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._consumer.subscribe(self._topics)
        while not self._stop:
            record = self._consumer.poll(0.1)
            with self.changed:
                if record is not None and not record.error():
                    self.read.append(record.value() or b"")
                self.assigned = sorted(place.partition for place in self._consumer.assignment())
                self.changed.notify_all()
        self._consumer.close()

    def has(self, count: int) -> None:
        """Return when it reads so many partitions."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.assigned) == count, WAIT_S), self.assigned

    def has_some(self) -> None:
        """Return when it reads any partition."""
        with self.changed:
            assert self.changed.wait_for(lambda: bool(self.assigned), WAIT_S)

    def close(self) -> None:
        """Leave the group."""
        self._stop = True
        self._thread.join()


@contextmanager
def reader(bootstrap: str, topics: list[str], protocol: str = "consumer") -> Iterator[Reader]:
    """A consumer, closed at the end."""
    group_reader = Reader(bootstrap, topics, protocol)
    try:
        yield group_reader
    finally:
        group_reader.close()


def _shared_by_two(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic("t", 4, 1)]).values():
        made.result(WAIT_S)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(40):
        producer.produce("t", str(number), partition=number % 4)
    assert producer.flush(WAIT_S) == 0
    with reader(bootstrap, ["t"]) as first:
        first.has(4)
        with first.changed:
            assert first.changed.wait_for(lambda: len(first.read) == 40, WAIT_S)
        with reader(bootstrap, ["^t.*"]) as second:
            first.has(2)
            second.has(2)
            assert not set(first.assigned) & set(second.assigned)
        first.has(4)
        assert second.read == []
    assert sorted(map(int, first.read)) == list(range(40))


async def test_librdkafka_shares_a_topic_by_name_and_by_pattern() -> None:
    """Nothing is read twice: what moves was committed by its reader before."""
    async with LocalCluster(properties=SETTINGS) as cluster:
        await asyncio.to_thread(_shared_by_two, cluster.bootstrap_servers)


def _changes_its_protocol(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic("t", 4, 1)]).values():
        made.result(WAIT_S)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(40):
        producer.produce("t", str(number), partition=number % 4)
    assert producer.flush(WAIT_S) == 0
    with reader(bootstrap, ["t"], "classic") as first:
        first.has(4)
        with first.changed:
            assert first.changed.wait_for(lambda: len(first.read) == 40, WAIT_S)
        with reader(bootstrap, ["t"]) as second:
            first.has(2)
            second.has(2)
            with reader(bootstrap, ["t"], "classic") as third:
                third.has_some()
        first.has(4)
    assert sorted(map(int, first.read + second.read + third.read)) == list(range(40))


@pytest.mark.variant
async def test_librdkafka_moves_a_group_to_the_new_protocol_and_back() -> None:
    """While it reads; what was committed in one protocol counts in the other, so nothing is read twice."""
    settings = {**SETTINGS, "group.consumer.migration.policy": "bidirectional", "group.consumer.max.size": "9"}
    async with LocalCluster(properties=settings) as cluster:
        await asyncio.to_thread(_changes_its_protocol, cluster.bootstrap_servers)


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
async def test_a_large_group_is_balanced_after_the_heartbeat(monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    """Its members have their target assignment a heartbeat later, whatever they speak; as if every group was large."""
    large = functools.partial(ConsumerLimits, assigned_at_once=0)
    monkeypatch.setattr("busway_bus.coordinator.consumer_groups.ConsumerLimits", large)
    settings = {**SETTINGS, "group.consumer.migration.policy": "bidirectional", "group.consumer.max.size": "9"}
    async with LocalCluster(properties=settings) as cluster:
        await asyncio.to_thread(_moves_to_another, cluster.bootstrap_servers, protocol)


def _moves_to_another(bootstrap: str, protocol: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic("t", 4, 1)]).values():
        made.result(WAIT_S)
    with reader(bootstrap, ["t"]) as first:
        first.has(4)
        with reader(bootstrap, ["t"], protocol) as second:
            first.has(2)
            second.has(2)
            assert not set(first.assigned) & set(second.assigned)
        first.has(4)
