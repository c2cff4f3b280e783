"""Every answer about features, and about what acts by their levels, equals Apache Kafka's: the same scenario against both."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from tests.integration.broker.admin_scenarios import AdminRun
from tests.integration.broker.answers import assert_same_answers
from tests.integration.broker.features_scenarios import SCENARIOS, Scenario, transactions
from tests.integration.broker.transactions_probe import transactions_against
from tests.integration.broker.transactions_scenarios import SETTINGS
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    """The real one, once for all scenarios; each leaves the levels as they were."""
    with ApacheKafka(SETTINGS) as running:
        yield running


@asynccontextmanager
async def admin_against(bootstrap_servers: str) -> AsyncIterator[AdminRun]:
    """A run that is prepared, and closed at the end."""
    host, _, port = bootstrap_servers.rpartition(":")
    run = AdminRun(host, int(port))
    try:
        await run.prepare()
        yield run
    finally:
        run.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_answers_are_kafkas(scenario: Scenario, kafka: ApacheKafka) -> None:
    """Field by field and word by word, in order."""
    await assert_same_answers(scenario, admin_against, kafka, SETTINGS)


async def test_transactions_follow_the_level_as_kafkas_do(kafka: ApacheKafka) -> None:
    """Open ones too, while it changes in every way."""
    await assert_same_answers(transactions, transactions_against, kafka, SETTINGS)
