"""Topics of very many partitions: no other client waits while they are made and removed, and each is there when it is said to be."""

import socket
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.busway_process import BuswayProcess
from tests.support.canary import Canary, KafkaQuestion
from tests.support.patience import patient

pytestmark = [pytest.mark.slow, pytest.mark.hostile]
PARTITIONS = 1_000
LIMIT = 1_024
LIMITED = (
    sys.executable,
    "-c",
    f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT // 4}, {LIMIT})); "
    f"os.execv(sys.argv[1], sys.argv[1:])",
)
"""Puts a process under a soft limit of 256 open files and a hard one of 1,024."""


@pytest.fixture
def broker() -> Iterator[BuswayProcess]:
    process = BuswayProcess({})
    process.start()
    yield process
    process.stop()


def done(futures: dict[str, Future[None]]) -> None:
    for future in futures.values():
        future.result(patient(100))


def produce(bootstrap_servers: str, topic: str, partitions: range) -> None:
    """One record to each partition; every one is acknowledged."""
    problems = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    for number in partitions:
        producer.produce(topic, b"v", partition=number, on_delivery=lambda error, _: problems.append(error))
    assert producer.flush(patient(60)) == 0
    assert len(problems) == len(partitions)
    assert not any(problems)


def test_a_thousand_partitions_are_made_and_removed_beside_others(broker):
    """It took 14 s in which no other client got an answer; now no answer waits for more than 100 ms of the loop's time."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    question = KafkaQuestion(broker.bootstrap_servers)
    settings = {"request_timeout": patient(100), "operation_timeout": patient(100)}
    with Canary(broker.pid, question) as creation:
        done(admin.create_topics([NewTopic("many", PARTITIONS, 1)], **settings))
    produce(broker.bootstrap_servers, "many", range(0, PARTITIONS, 10))
    with Canary(broker.pid, question) as deletion:
        done(admin.delete_topics(["many"], **settings))
    done(admin.create_topics([NewTopic("many", 10, 1)], **settings))
    produce(broker.bootstrap_servers, "many", range(10))
    creation.check()
    deletion.check()


def test_more_partitions_than_files_may_be_open_are_all_served():
    """At 1,024 descriptors 100 of 400 partitions were offline, and CreateTopics had said nothing of it."""
    process = BuswayProcess({}, prefix=LIMITED)
    process.start()
    try:
        admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
        topics = [f"t{number}" for number in range(4)]
        done(admin.create_topics([NewTopic(topic, 100, 1) for topic in topics], request_timeout=patient(60)))
        for topic in topics:
            produce(process.bootstrap_servers, topic, range(100))
        consumer = Consumer({"bootstrap.servers": process.bootstrap_servers, "group.id": "g"})
        consumer.assign([TopicPartition(topic, number, 0) for topic in topics for number in range(100)])
        seen: set[tuple[str, int]] = set()
        while len(seen) < 400:
            message = consumer.poll(patient(20))
            assert message is not None, f"{400 - len(seen)} partitions gave nothing"
            assert message.error() is None
            seen.add((message.topic(), message.partition()))
        consumer.close()
        host, _, port = process.bootstrap_servers.rpartition(":")
        sockets = [socket.create_connection((host, int(port)), timeout=patient(10)) for _ in range(300)]
        question = KafkaQuestion(process.bootstrap_servers)
        question()
        question.close()
        assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < LIMIT
        for each in sockets:
            each.close()
    finally:
        process.stop()
