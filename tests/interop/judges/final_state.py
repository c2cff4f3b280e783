"""What is there in the end, read by two clients of their own.

Here: reading everything, and what the broker says of ends and offsets.
Not here: judging it (`tests.support.judging`).
"""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from tools import install_foreign

from tests.interop.judges.history_file import HistoryFile
from tests.support.patience import patient

PATIENCE_SECONDS = patient(45.0)
Record = tuple[int, int, str]


def consumer(bootstrap: str, isolation: str, **settings: Any) -> Consumer:
    """One of librdkafka, in no group."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "log_level": 0,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            **settings,
        }
    )


def ends(bootstrap: str, topic: str, partitions: int, isolation: str) -> dict[int, int]:
    """How far a reader may read."""
    reader = consumer(bootstrap, isolation)
    end_offsets = {n: reader.get_watermark_offsets(TopicPartition(topic, n), 20)[1] for n in range(partitions)}
    reader.close()
    return end_offsets


def settled(bootstrap: str, topic: str, partitions: int, history: HistoryFile) -> dict[int, int]:
    """The ends of a topic once no transaction is open in it, or those of now when that takes longer than any may be open."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        stable = ends(bootstrap, topic, partitions, "read_committed")
        high = ends(bootstrap, topic, partitions, "read_uncommitted")
        if stable == high or time.monotonic() > deadline:
            break
    for number in stable:
        fields = {"partition": f"{topic}-{number}", "stable": stable[number], "high": high[number], "last": True}
        history.record("stable_offset", "ends", **fields)
    return stable


def read_with_librdkafka(bootstrap: str, topic: str, upto: Mapping[int, int]) -> Iterator[Record]:
    """Every committed record."""
    reader = consumer(bootstrap, "read_committed", **{"enable.partition.eof": True, "auto.offset.reset": "earliest"})
    left = {number for number, end in upto.items() if end}
    reader.assign([TopicPartition(topic, number, 0) for number in left])
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left:
        assert time.monotonic() < deadline, f"the ends of {topic} were not reached: {left}"
        for message in reader.consume(5000, 1):
            if (problem := message.error()) is None:
                yield message.partition(), message.offset(), message.value().decode()
            elif problem.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    reader.close()


def read_with_franz_go(bootstrap: str, topic: str, upto: Mapping[int, int]) -> Iterator[Record]:
    """Every committed record."""
    command = [str(install_foreign.franz_go()), "dump", bootstrap, topic, json.dumps(upto)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    for text in done.stdout.splitlines():
        partition, offset, value = json.loads(text)
        yield partition, offset, value


READERS = {"librdkafka": read_with_librdkafka, "franz-go": read_with_franz_go}


def read_all(bootstrap: str, topic: str, partitions: int, history: HistoryFile) -> int:
    """All committed records of a topic, by both readers; how many."""
    upto = settled(bootstrap, topic, partitions, history)
    count = 0
    for reading, read in READERS.items():
        by_partition: dict[int, list[list[Any]]] = {number: [] for number in upto}
        for partition, offset, value in read(bootstrap, topic, upto):
            by_partition[partition].append([f"{topic}-{partition}", offset, value])
        for number, records in by_partition.items():
            fields = {"partition": f"{topic}-{number}", "records": records}
            history.record("committed_read", f"final {reading}", reading=reading, **fields)
        count = sum(map(len, by_partition.values()))
    return count


def read_input(bootstrap: str, topic: str, partitions: int, history: HistoryFile) -> None:
    """As `read_all`, and as a topic whose every record counts."""
    read_all(bootstrap, topic, partitions, history)
    upto = ends(bootstrap, topic, partitions, "read_uncommitted")
    by_partition: dict[int, list[list[Any]]] = {number: [] for number in upto}
    for partition, offset, value in read_with_librdkafka(bootstrap, topic, upto):
        by_partition[partition].append([f"{topic}-{partition}", offset, value])
    for number, records in by_partition.items():
        fields = {"partition": f"{topic}-{number}", "end": upto[number], "records": records}
        history.record("final_read", "final", **fields)


def look_at_offsets(admin: AdminClient, group: str, topic: str, partitions: int, history: HistoryFile) -> None:
    """What a group has committed in the end."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values()
    for place in asked.result(patient(20)).topic_partitions:
        offset = None if place.offset < 0 else place.offset
        for reading in READERS:
            fields = {"partition": f"{topic}-{place.partition}", "offset": offset, "last": True}
            history.record("group_offset", reading, group=group, **fields)
