"""Every answer about transactions in a partition equals Apache Kafka's: the same scenario against both, the logs of answers compared."""

from collections.abc import Iterator

import pytest
from tests.integration.broker.answers import assert_same_answers
from tests.integration.broker.transactional_batches_scenarios import SCENARIOS, Scenario
from tests.integration.broker.transactions_probe import transactions_against
from tests.integration.broker.transactions_scenarios import SETTINGS
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    """The real one, once for all scenarios; each has a topic of its own."""
    with ApacheKafka(SETTINGS) as running:
        yield running


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_answers_are_kafkas(scenario: Scenario, kafka: ApacheKafka) -> None:
    """Field by field, in order; throttle times and the words of messages apart."""
    await assert_same_answers(scenario, transactions_against, kafka, SETTINGS)
