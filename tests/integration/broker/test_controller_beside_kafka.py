"""Answers on a controller's listener equal Apache Kafka's, to their words."""

from collections.abc import Awaitable, Callable, Iterator

import pytest
from tests.integration.broker.admin_scenarios import CONTROLLER_SCENARIOS, SETTINGS, AdminRun
from tests.integration.broker.test_admin_beside_kafka import LISTENERS, compare, outcome
from tests.support.apache_kafka import ApacheKafka

from busway_bus.testing.local_cluster import LocalCluster

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    """The real one, without what scenarios of brokers leave behind."""
    with ApacheKafka(SETTINGS) as running:
        yield running


@pytest.mark.parametrize("scenario", CONTROLLER_SCENARIOS)
async def test_a_controllers_answers_are_kafkas(
    scenario: Callable[[AdminRun], Awaitable[None]], kafka: ApacheKafka
) -> None:
    """Field by field; what depends on the machine apart."""
    async with LocalCluster(properties={**SETTINGS, **LISTENERS}, prompt=False) as cluster:
        assert cluster.node is not None
        here = cluster.node.services.controller_advertised["CONTROLLER"].address
        ours = await outcome(scenario, here, cluster.bootstrap_servers)
        compare([ours, await outcome(scenario, kafka.bootstrap_controllers, kafka.bootstrap_servers)])
