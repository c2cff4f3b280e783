"""librdkafka through confluent-kafka: `version`, `produce`, `read`, `member`, `since` (see `tests.interop.clients`)."""

import json
import os
import sys
from typing import Any

import confluent_kafka

from tests.support.patience import patient

SESSION_MS = int(os.environ.get("BUSWAY_INTEROP_SESSION_MS", "3000"))


def show(message: confluent_kafka.Message) -> None:
    """Print one record as a line of JSON."""
    assert message.error() is None, message.error()
    seen = {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": message.key().decode(),
        "value": message.value().decode(),
        "headers": {name: value.decode() for name, value in message.headers() or []},
    }
    print(json.dumps(seen), flush=True)


def produce(bootstrap: str, topic: str, codec: str) -> None:
    """Write the records on standard input."""
    failures: list[Any] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True, "linger.ms": 50}
    )
    for line in sys.stdin:
        record = json.loads(line)
        producer.produce(
            topic,
            key=record["key"],
            value=record["value"],
            headers=record["headers"],
            on_delivery=lambda problem, _: failures.append(problem) if problem else None,
        )
    assert producer.flush(patient(20)) == 0
    assert failures == []


def consumer(bootstrap: str, group: str) -> confluent_kafka.Consumer:
    """A member of a group that commits by itself."""
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": min(SESSION_MS // 10, 3000),
        }
    )


def read(bootstrap: str, group: str, count: str, *topics: str) -> None:
    """Read so many records, commit and leave."""
    reader = consumer(bootstrap, group)
    reader.subscribe(list(topics))
    left = int(count)
    while left:
        for message in reader.consume(left, 0.5):
            show(message)
            left -= 1
    reader.commit(asynchronous=False)
    reader.close()


def member(bootstrap: str, topic: str, group: str) -> None:
    """Read and commit until killed."""
    reader = consumer(bootstrap, group)
    reader.subscribe([topic])
    while True:
        polled = reader.consume(100, 0.2)
        for message in polled:
            show(message)
        if polled:
            reader.commit(asynchronous=True)


def since(bootstrap: str, topic: str, timestamp: str) -> None:
    """The first record of partition 0 at or after a time."""
    reader = consumer(bootstrap, "since")
    wanted = confluent_kafka.TopicPartition(topic, 0, int(timestamp))
    reader.assign(reader.offsets_for_times([wanted], timeout=patient(10)))
    (message,) = reader.consume(1, patient(20))
    show(message)
    reader.close()


def version() -> None:
    """Both versions."""
    print(f"{confluent_kafka.libversion()[0]} (confluent-kafka {confluent_kafka.version()})")


if __name__ == "__main__":
    {"produce": produce, "read": read, "member": member, "since": since, "version": version}[sys.argv[1]](*sys.argv[2:])
