"""What readers find in a topic, by librdkafka's word."""

import asyncio
import uuid

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place
from tests.support.patience import patient

from busway import Consumer as Reader
from busway import TopicPartition

_SECONDS = patient(30.0)


def _read(bootstrap: str, topic: str, partitions: int, isolation: str) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"judge-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    values: list[bytes | None] = []
    left = set(range(partitions))
    try:
        consumer.assign([Place(topic, number, 0) for number in left])
        while left:
            message = consumer.poll(_SECONDS)
            assert message is not None, f"the end of {topic}-{left} was not reached"
            problem = message.error()
            if problem is None:
                values.append(message.value())
            elif problem.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                raise KafkaException(problem)
    finally:
        consumer.close()
    return values


async def ended(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Wait until no transaction is open in the topic.

    Its coordinator answers the end of a transaction when that is decided, and only then writes the markers, as in Kafka.
    """
    where = [TopicPartition(topic, number) for number in range(partitions)]
    async with (
        asyncio.timeout(_SECONDS),
        Reader(bootstrap_servers=bootstrap, auto_offset_reset="latest", isolation_level="read_committed") as reader,
    ):
        ends = await reader.end_offsets(where, open_too=True)
        await reader.assign(where)  # which begins at the last stable offset
        while any([await reader.position(partition) < ends[partition] for partition in where]):
            await reader.getmany(timeout_ms=100)


async def committed(
    bootstrap: str, topic: str, partitions: int = 1, *, one_is_open: bool = False
) -> list[bytes | None]:
    """What a reader of committed records finds up to the last stable offset, when no transaction is open or `one_is_open`."""
    if not one_is_open:
        await ended(bootstrap, topic, partitions)
    return await asyncio.to_thread(_read, bootstrap, topic, partitions, "read_committed")


async def written(bootstrap: str, topic: str, partitions: int = 1) -> list[bytes | None]:
    """What is in the log, aborted or open as it may be."""
    return await asyncio.to_thread(_read, bootstrap, topic, partitions, "read_uncommitted")
