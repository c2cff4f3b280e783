"""Random orders of calls get the same answers and leave the same state on Busway, in the models and on Apache Kafka.

Here: a bounded number of orders of each fuzzer.
Not here: longer runs (`python -m tests.interop.fuzz`).
"""

from collections.abc import Iterator

import pytest

from tests.integration.broker.illegal_orders import MISTYPED, REPLACED
from tests.interop.fuzz.play import SETTINGS, About, Brokers, hunt
from tests.support.apache_kafka import ApacheKafka
from tests.support.patience import patient
from tests.support.seeds import seed

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(patient(600))]

SEQUENCES = 400


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    """Both, at once for all orders."""
    with ApacheKafka(SETTINGS) as kafka, Brokers(kafka) as running:
        yield running


@pytest.mark.parametrize("calls", [REPLACED, MISTYPED])
def test_orders_that_once_differed_are_answered_as_kafka_does(brokers: Brokers, calls: list[object]) -> None:
    """Each call, and what is left at the end."""
    brokers.play(calls)  # type: ignore[arg-type]


@pytest.mark.parametrize("about", ["transactions", "groups"])
def test_random_orders_are_answered_as_kafka_and_the_model_do(brokers: Brokers, about: About) -> None:
    """All differences of the seed, each without the calls that it does not need."""
    transcripts: list[str] = []
    hunt(brokers, about, SEQUENCES, seed(1), transcripts.append)
    assert not transcripts, "\n\n".join(transcripts)
