"""compose/three.yaml: three brokers that form one cluster, for services on this machine."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.compose.stack import Stack
from tests.support.patience import patient
from tests.support.waiting import until

from busway import Admin, App, TopicPartition
from busway.consumer.snapshot import read_to_end

pytestmark = [pytest.mark.compose, pytest.mark.slow, pytest.mark.timeout(1200)]
BUSES = ("BUS_1", "BUS_2", "BUS_3")
COUNT = 600


@dataclass
class Order:
    """A record in Avro, so that the registry is used."""

    number: int


@pytest.fixture(scope="module")
def three() -> Iterator[Stack]:
    """All services, healthy."""
    with Stack("three.yaml") as running:
        yield running


def addresses(stack: Stack) -> str:
    return ",".join(f"127.0.0.1:{stack.ports[name]}" for name in BUSES)


async def test_the_brokers_are_one_cluster(three: Stack) -> None:
    """A client here reaches each, and so does one among the containers; topics have three replicas."""
    async with Admin(addresses(three)) as admin:
        cluster = await admin.describe_cluster()
        assert set(cluster.brokers.values()) == {("127.0.0.1", three.ports[name]) for name in BUSES}
    status = ("exec", "-T", "bus-2", "busway", "cluster", "status", "-b", "bus-3:9092", "--json")
    assert (await asyncio.to_thread(three.compose, *status)).count('"active"') == 3
    containers = three.containers()
    assert {name: container.user for name, container in containers.items()} == dict.fromkeys(
        ("bus-1", "bus-2", "bus-3", "registry"), "10001:10001"
    )


async def test_leaders_are_killed_under_load(three: Stack) -> None:
    """An exactly-once service goes on while the leaders' containers are killed in turn: each order has one effect."""
    app = App("shop", bootstrap_servers=addresses(three), schema_registry=f"http://127.0.0.1:{three.ports['REGISTRY']}")
    orders = app.topic("orders", key=str, value=Order, partitions=3)
    bills = app.topic("bills", key=str, value=Order, format="json", partitions=3)

    @app.subscribe(orders, guarantee="exactly_once")
    async def bill(order: Order) -> None:
        await bills.send(Order(order.number), key="k")

    sent = 0

    async def send() -> None:
        nonlocal sent
        for number in range(COUNT):
            await orders.send(Order(number), key=str(number))
            sent += 1

    async with asyncio.timeout(patient(300)), app, Admin(addresses(three)) as admin:
        described = await admin.describe_topics(["orders"])
        assert {len(partition.replicas) for partition in described["orders"].partitions} == {3}
        sending = asyncio.ensure_future(send())
        for part in (1, 2):
            await until(lambda part=part: sending.done() or sent >= part * COUNT // 4, seconds=120)
            assert not sending.done(), "the load ended before the kill"
            described = await admin.describe_topics(["orders"])
            leader = described["orders"].partitions[0].leader
            await asyncio.to_thread(three.kill, f"bus-{leader}")
            await asyncio.to_thread(three.up, f"bus-{leader}")
        await sending

        async def billed() -> bool:
            ends = await admin.list_offsets({TopicPartition("orders", number): -1 for number in range(3)})
            committed = await admin.list_group_offsets(app.group_id)
            return all(end in {0, getattr(committed.get(each), "offset", 0)} for each, end in ends.items())

        await until(billed, seconds=120, pause_s=0.5)
    left = read_to_end(addresses(three), "bills", isolation_level="read_committed")
    assert sorted([json.loads(record.value or b"")["number"] async for record in left]) == list(range(COUNT))
