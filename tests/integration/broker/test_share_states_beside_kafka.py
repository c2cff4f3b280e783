"""Every answer about share groups' state equals Apache Kafka's: the same requests to both, the answers compared."""

from collections.abc import Iterator

import pytest
from tests.integration.broker.answers import assert_same_answers
from tests.integration.broker.share_states_probe import SETTINGS, StatesRun, life, states_against
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    """The real one."""
    with ApacheKafka(SETTINGS, features={"share.version": 1}) as running:
        yield running


async def scenario(run: StatesRun) -> None:
    """All of it."""
    await run.ready("s")
    await life(run)


async def test_the_answers_are_kafkas(kafka: ApacheKafka) -> None:
    """Field by field, in order; the words of messages apart."""
    await assert_same_answers(scenario, states_against, kafka, SETTINGS)
