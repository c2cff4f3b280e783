"""Every answer about share groups equals Apache Kafka's: the same requests to both, the answers compared."""

from collections.abc import Awaitable, Callable, Iterator

import pytest
from tests.integration.broker.answers import assert_same_answers
from tests.integration.broker.share_groups_probe import SCENARIOS, SETTINGS, SharesRun, shares_against
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    """The real one, once for all scenarios; each has groups of its own."""
    with ApacheKafka(SETTINGS, features={"share.version": 1}) as running:
        yield running


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_answers_are_kafkas(scenario: Callable[[SharesRun], Awaitable[None]], kafka: ApacheKafka) -> None:
    """Field by field, in order; the words of messages apart."""
    await assert_same_answers(scenario, shares_against, kafka, SETTINGS)
