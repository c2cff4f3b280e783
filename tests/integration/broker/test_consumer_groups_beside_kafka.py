"""Every answer about consumer groups equals Apache Kafka's: the same scenario against both, the logs of answers compared."""

from collections.abc import Iterator

import pytest
from tests.integration.broker.answers import assert_same_answers
from tests.integration.broker.consumer_groups_scenarios import SCENARIOS, SETTINGS, Scenario
from tests.integration.broker.groups_probe import run_against
from tests.support.apache_kafka import ApacheKafka

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
