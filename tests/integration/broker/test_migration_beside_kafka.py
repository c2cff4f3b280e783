"""Every answer in groups of both protocols equals Apache Kafka's: the same scenario against both, the logs of answers compared."""

from collections.abc import Iterator

import pytest
from tests.integration.broker.answers import assert_same_answers
from tests.integration.broker.groups_probe import run_against
from tests.integration.broker.migration_scenarios import SCENARIOS, SETTINGS, Scenario, without_consumer_groups
from tests.support.apache_kafka import ApacheKafka

from busway_bus.metadata import bootstrap
from busway_bus.metadata.features import GROUP_VERSION, levels_of_new_clusters

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    """The real one, once for all scenarios; each has groups of its own names."""
    with ApacheKafka(SETTINGS) as running:
        yield running


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_answers_are_kafkas(scenario: Scenario, kafka: ApacheKafka) -> None:
    """Field by field, in order; throttle times and the words of messages apart."""
    await assert_same_answers(scenario, run_against, kafka, SETTINGS)


async def test_without_group_version_there_are_no_consumer_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a data directory of an earlier version; classic groups are as ever."""
    earlier = {name: level for name, level in levels_of_new_clusters().items() if name != GROUP_VERSION}
    monkeypatch.setattr(bootstrap, "levels_of_new_clusters", lambda: earlier)
    with ApacheKafka(SETTINGS, features={GROUP_VERSION: 0}) as kafka:
        await assert_same_answers(without_consumer_groups, run_against, kafka, SETTINGS)
