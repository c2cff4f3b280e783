"""compose/minimal.yaml: bus and registry, for a service on this machine."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.compose.stack import Stack
from tests.support.patience import patient

from busway import App

pytestmark = [pytest.mark.compose, pytest.mark.slow, pytest.mark.timeout(1200)]


@dataclass
class Order:
    """A record in Avro, so that the registry is used."""

    number: int


@pytest.fixture(scope="module")
def minimal() -> Iterator[Stack]:
    """Both services, healthy."""
    with Stack("minimal.yaml") as running:
        yield running


async def handled(stack: Stack, sent: list[int], count: int) -> list[int]:
    """Run a service that sends and handles orders until it has handled `count`."""
    app = App(
        "shop",
        bootstrap_servers=f"127.0.0.1:{stack.ports['BUS']}",
        schema_registry=f"http://127.0.0.1:{stack.ports['REGISTRY']}",
    )
    orders = app.topic("orders", key=str, value=Order)
    numbers: list[int] = []
    enough = asyncio.Event()

    @app.subscribe(orders)
    async def handle(order: Order) -> None:
        numbers.append(order.number)
        if len(numbers) == count:
            enough.set()

    async with asyncio.timeout(patient(60)), app:
        for number in sent:
            await orders.send(Order(number), key="k")
        await enough.wait()
    return numbers


async def test_a_service_before_and_after_a_kill(minimal: Stack) -> None:
    """Bus and registry are killed and started again: the group's offsets, the topic and the schema are there."""
    assert await handled(minimal, [1, 2, 3], 3) == [1, 2, 3]
    for service in ("bus", "registry"):
        await asyncio.to_thread(minimal.kill, service)
    await asyncio.to_thread(minimal.up)
    assert await handled(minimal, [4], 1) == [4]


def test_the_containers_have_no_rights(minimal: Stack) -> None:
    """There are two, and neither runs as root."""
    assert {name: container.user for name, container in minimal.containers().items()} == dict.fromkeys(
        ("bus", "registry"), "10001:10001"
    )
