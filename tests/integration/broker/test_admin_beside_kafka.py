"""Every answer about topics, settings, partitions and the quorum equals Apache Kafka's, to its words."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.integration.broker.admin_scenarios import SCENARIOS, SETTINGS, AdminRun
from tests.integration.broker.groups_probe import DEADLINE_S
from tests.support.apache_kafka import ApacheKafka

from busway_bus.testing.local_cluster import LocalCluster

pytestmark = [pytest.mark.java, pytest.mark.slow]
LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    """The real one, once for all scenarios."""
    with ApacheKafka(SETTINGS) as running:
        yield running


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_answers_are_kafkas(scenario: Callable[[AdminRun], Awaitable[None]], kafka: ApacheKafka) -> None:
    """Field by field; what depends on the machine apart."""
    async with LocalCluster(properties={**SETTINGS, **LISTENERS}, prompt=False) as cluster:
        compare([await outcome(scenario, address) for address in (cluster.bootstrap_servers, kafka.bootstrap_servers)])


async def outcome(scenario: Callable[[AdminRun], Awaitable[None]], address: str, servers: str = "") -> Any:
    """What a scenario is answered at an address; `servers` is that of the broker, where it differs."""
    host, _, port = (servers or address).rpartition(":")
    run = AdminRun(host, int(port))
    try:
        async with asyncio.timeout(2 * DEADLINE_S):
            await run.prepare()
            if servers:
                await run.move(address)
            await scenario(run)
    finally:
        run.close()
    return run.outcome()


def compare(outcomes: list[Any]) -> None:
    """Say where the answers differ."""
    ours, theirs = outcomes
    assert ours
    assert [label for label, _ in ours] == [label for label, _ in theirs]
    differences = [
        line for (label, our), (_, their) in zip(ours, theirs, strict=True) for line in differ(label, our, their)
    ]
    assert not differences, "\n".join(differences)


def differ(path: str, ours: Any, theirs: Any) -> Iterator[str]:
    """Where two answers differ, a line for each place."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in ours:
            yield from differ(f"{path}.{key}", ours[key], theirs[key])
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for our, their in zip(ours, theirs, strict=True):
            name = our.get("name", our.get("topic", "")) if isinstance(our, dict) else ""
            yield from differ(f"{path}[{name}]", our, their)
    elif ours != theirs:
        yield f"{path}: {ours!r}, but Kafka {theirs!r}"
