"""Topics of very many partitions: nobody else waits while they are made and removed, and each is there when it is said to be."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.broker import BuswayProcess
from tests.support.canary import Canary, KafkaQuestion

pytestmark = [pytest.mark.slow, pytest.mark.hostile]
PARTITIONS = 1_000


@pytest.fixture
def broker() -> Iterator[BuswayProcess]:
    process = BuswayProcess({})
    process.start()
    yield process
    process.stop()


def done(futures: dict[str, Future[None]]) -> None:
    for future in futures.values():
        future.result(100)


def produce(bootstrap_servers: str, topic: str, partitions: range) -> None:
    """One record to each partition; every one is acknowledged."""
    problems = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    for number in partitions:
        producer.produce(topic, b"v", partition=number, on_delivery=lambda error, _: problems.append(error))
    assert producer.flush(60) == 0
    assert len(problems) == len(partitions)
    assert not any(problems)


def test_a_thousand_partitions_are_made_and_removed_beside_others(broker):
    """It took 14 s in which nobody else got an answer; now no answer waits for more than 100 ms of the loop's time."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    question = KafkaQuestion(broker.bootstrap_servers)
    settings = {"request_timeout": 100, "operation_timeout": 100}
    with Canary(broker.pid, question) as canary:
        done(admin.create_topics([NewTopic("many", PARTITIONS, 1)], **settings))
        produce(broker.bootstrap_servers, "many", range(0, PARTITIONS, 10))
        done(admin.delete_topics(["many"], **settings))
        done(admin.create_topics([NewTopic("many", 10, 1)], **settings))
        produce(broker.bootstrap_servers, "many", range(10))
    question.close()
    canary.check()
