"""Every answer about transactions in a partition equals Apache Kafka's: the same scenario against both, the logs of answers compared."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.broker.groups_probe import DEADLINE_S
from tests.integration.broker.transactional_batches_scenarios import SCENARIOS, Scenario
from tests.integration.broker.transactions_probe import transactions_against
from tests.integration.broker.transactions_scenarios import SETTINGS
from tests.support.apache_kafka import ApacheKafka

from busway_bus.testing.local_cluster import LocalCluster

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    """The real one, once for all scenarios; each has a topic of its own."""
    with ApacheKafka(SETTINGS) as running:
        yield running


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_answers_are_kafkas(scenario: Scenario, kafka: ApacheKafka) -> None:
    """Field by field, in order; throttle times and the words of messages apart."""
    logs: list[Any] = []
    async with LocalCluster(properties=SETTINGS) as cluster:
        for bootstrap in (cluster.bootstrap_servers, kafka.bootstrap_servers):
            async with asyncio.timeout(2 * DEADLINE_S), transactions_against(bootstrap) as run:
                await scenario(run)
                logs.append(run.outcome())
    ours, theirs = logs
    assert [label for label, _ in ours] == [label for label, _ in theirs]
    differences = [
        f"{label}\n   ours: {mine}\n kafka: {their}"
        for (label, mine), (_, their) in zip(ours, theirs, strict=True)
        if mine != their
    ]
    assert not differences, "\n".join(differences)
