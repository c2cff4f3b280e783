"""The clients that load a broker: librdkafka, and the performance tools of Apache Kafka.

Here: one call for each kind of load, answering how many records went in how many seconds.
Not here: the broker's side of it, its CPU time and memory (`workloads`).
"""

import math
import os
import re
import subprocess
import time
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not by its stubs
    AdminClient,
    NewPartitions,
    NewTopic,
)
from tests.support.apache_kafka import java_command

WAIT_SECONDS = 60.0
_QUEUED_MAX = 300_000
_BATCH = 5_000
_ERRORS = 3
"""syslog's level from which on librdkafka speaks up."""
_PARTITIONS_AT_ONCE = 5_000
"""Kafka refuses requests that make more than 10,000 records of metadata."""


class LoadFailed(RuntimeError):
    """A client did not finish its load."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What a client moved, and how long it took by its own clock."""

    records: int
    seconds: float


def create_topic(bootstrap_servers: str, name: str, partitions: int) -> None:
    """Make a topic with the brokers' default replication factor, whose files go soon after it is deleted."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": _ERRORS})
    count = min(partitions, _PARTITIONS_AT_ONCE)
    topic = NewTopic(name, num_partitions=count, replication_factor=-1, config={"file.delete.delay.ms": "1000"})
    for future in admin.create_topics([topic]).values():
        future.result(WAIT_SECONDS)
    while count < partitions:
        count = min(partitions, count + _PARTITIONS_AT_ONCE)
        for future in admin.create_partitions([NewPartitions(name, count)]).values():
            future.result(WAIT_SECONDS)
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        described = admin.list_topics(name, timeout=WAIT_SECONDS).topics[name]
        if described.error is None and len(described.partitions) == partitions:
            return
        time.sleep(0.02)
    raise LoadFailed(f"{name} has no leaders")


def delete_topic(bootstrap_servers: str, name: str) -> None:
    """Remove a topic, and let what it left in the page cache go to disk, so that it burdens no other measurement."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": _ERRORS})
    for future in admin.delete_topics([name]).values():
        future.result(WAIT_SECONDS)
    os.sync()


def librdkafka_produce(bootstrap_servers: str, topic: str, records: int, size: int) -> Moved:
    """Produce with librdkafka's defaults (acks=all, linger 5 ms), as fast as it can."""
    failures: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "queue.buffering.max.messages": 2 * _QUEUED_MAX,
            "delivery.report.only.error": True,
        }
    )
    producer.list_topics(topic, timeout=WAIT_SECONDS)
    messages: list[dict[str, Any]] = [{"value": os.urandom(size)} for _ in range(_BATCH)]
    begun = time.perf_counter()
    sent = 0
    while sent < records:
        while len(producer) > _QUEUED_MAX:
            producer.poll(0.002)
        batch = messages if records - sent >= _BATCH else messages[: records - sent]
        sent += producer.produce_batch(topic, batch, on_delivery=lambda error, _: failures.append(error))
    left = producer.flush(WAIT_SECONDS)
    seconds = time.perf_counter() - begun
    if left or failures:
        raise LoadFailed(f"{left} records were not sent, {len(failures)} failed: {failures[:1]}")
    return Moved(records, seconds)


def librdkafka_fetch(bootstrap_servers: str, topic: str, partitions: int, records: int) -> Moved:
    """Read a topic from its beginning with librdkafka, without a group.

    By default librdkafka rests for a second whenever 100,000 records wait in its queue, which a fast broker meets first.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 1,
        }
    )
    try:
        consumer.list_topics(topic, timeout=WAIT_SECONDS)
        begun = time.perf_counter()
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        read = 0
        while read < records:
            messages = consumer.consume(10_000, timeout=0.1)
            if not messages and time.perf_counter() - begun > WAIT_SECONDS:
                raise LoadFailed(f"{read} of {records} records came")
            read += len(messages)
            problem = messages[-1].error() if messages else None
            if problem is not None:
                raise LoadFailed(str(problem))
        return Moved(read, time.perf_counter() - begun)
    finally:
        consumer.close()


def lone_produces(bootstrap_servers: str, topic: str, count: int, size: int) -> list[float]:
    """Seconds from handing over one record with acks=all to its acknowledgement, the next one only then."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "acks": "all"})
    value = os.urandom(size)
    taken = []
    for _ in range(count):
        begun = time.perf_counter()
        _produce_one(producer, topic, value)
        taken.append(time.perf_counter() - begun)
    return taken


def first_acknowledged(bootstrap_servers: str) -> None:
    """Return when a new client's first record, to a topic that is created for it, is acknowledged."""
    settings = {"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "topic.metadata.refresh.fast.interval.ms": 10}
    _produce_one(Producer(settings), "first", b"first")


def _produce_one(producer: Producer, topic: str, value: bytes) -> None:
    done: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        done.append(error)

    producer.produce(topic, value, on_delivery=delivered)
    until = time.monotonic() + WAIT_SECONDS
    while not done:
        producer.poll(1.0)
        if time.monotonic() > until:
            raise LoadFailed("a record was not acknowledged")
    if done[0] is not None:
        raise LoadFailed(str(done[0]))


_SENT = re.compile(r"^(\d+) (?:steady state )?records sent, ([\d.]+) records/sec", re.MULTILINE)


def java_produce(bootstrap_servers: str, topic: str, records: int, size: int) -> Moved:
    """Produce with the Java client's defaults through kafka-producer-perf-test; its own first fifth is not counted."""
    warm_up = records // 5
    output = _java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(records), "--record-size", str(size), "--warmup-records", str(warm_up)),
    )
    return parse_produced(output)


def parse_produced(output: str) -> Moved:
    """The last summary of kafka-producer-perf-test, which is the one without warm-up."""
    sent = _SENT.findall(output)
    if not sent:
        raise LoadFailed(f"the producer tool said:\n{output[-2000:]}")
    records, rate = int(sent[-1][0]), float(sent[-1][1])
    return Moved(records, records / rate if rate else math.inf)


def java_fetch(bootstrap_servers: str, topic: str, records: int) -> Moved:
    """Read a topic with the Java client's defaults through kafka-consumer-perf-test, the time in the group's join not counted."""
    output = _java(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--num-records", str(records)),
        *("--group", f"bench-{uuid4()}", "--hide-header"),
    )
    return parse_fetched(output)


def parse_fetched(output: str) -> Moved:
    """The line of kafka-consumer-perf-test: its fifth field counts records, its eighth the ms spent fetching."""
    lines = [line for line in output.splitlines() if line.count(",") == 9]
    if not lines:
        raise LoadFailed(f"the consumer tool said:\n{output[-2000:]}")
    fields = lines[-1].split(",")
    return Moved(int(fields[4]), int(fields[7]) / 1000)


def _java(main_class: str, *arguments: str) -> str:
    # The tests keep their short-lived JVMs at the first compiler; a client under load needs both.
    command = [word for word in java_command(main_class, *arguments) if not word.startswith("-XX:")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS * 5, check=False)
    if done.returncode != 0:
        raise LoadFailed(f"{main_class} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout
