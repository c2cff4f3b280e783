"""kafka-python: `version`, `produce`, `read`, `member`, `since` (see `tests.interop.clients`)."""

import json
import sys
from typing import Any

import kafka
from kafka.errors import CommitFailedError

from tests.support.patience import patient, patient_ms


def show(message: Any) -> None:
    """Print one record as a line of JSON."""
    seen = {
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": message.key.decode(),
        "value": message.value.decode(),
        "headers": {name: value.decode() for name, value in message.headers},
    }
    print(json.dumps(seen), flush=True)


def produce(bootstrap: str, topic: str, codec: str) -> None:
    """Write the records on standard input."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=50
    )
    sent = []
    for line in sys.stdin:
        record = json.loads(line)
        headers = [(name, value.encode()) for name, value in record["headers"].items()]
        sent.append(producer.send(topic, key=record["key"].encode(), value=record["value"].encode(), headers=headers))
    producer.flush(patient(20))
    for future in sent:
        future.get(20)
    producer.close()


def consumer(bootstrap: str, group: str | None, *topics: str) -> kafka.KafkaConsumer:
    """A member of a group that commits by itself."""
    return kafka.KafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=3000,
        heartbeat_interval_ms=300,
    )


def read(bootstrap: str, group: str, count: str, *topics: str) -> None:
    """Read so many records, commit and leave."""
    reader = consumer(bootstrap, group, *topics)
    for _ in range(int(count)):
        show(next(reader))
    reader.commit()
    reader.close()


def member(bootstrap: str, topic: str, group: str) -> None:
    """Read and commit until killed."""
    reader = consumer(bootstrap, group, topic)
    while True:
        # It returns when there are records. A poll that times out in the middle of a rebalance leaves 3.0.12 stuck: it
        # spins without heartbeats, on Apache Kafka too.
        polled = reader.poll(timeout_ms=patient_ms(30_000))
        for messages in polled.values():
            for message in messages:
                show(message)
        if polled:
            try:
                reader.commit()
            except CommitFailedError:
                continue  # a rebalance took the partitions away: another member reads them again


def since(bootstrap: str, topic: str, timestamp: str) -> None:
    """The first record of partition 0 at or after a time."""
    reader = consumer(bootstrap, None)
    partition = kafka.TopicPartition(topic, 0)
    reader.assign([partition])
    reader.seek(partition, reader.offsets_for_times({partition: int(timestamp)})[partition].offset)
    show(next(reader))
    reader.close()


def version() -> None:
    """The version."""
    print(kafka.__version__)


if __name__ == "__main__":
    {"produce": produce, "read": read, "member": member, "since": since, "version": version}[sys.argv[1]](*sys.argv[2:])
