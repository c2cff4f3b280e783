"""What readers find in a topic, by librdkafka's word."""

import asyncio
import uuid

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tests.support.patience import patient

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
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
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


async def committed(bootstrap: str, topic: str, partitions: int = 1) -> list[bytes | None]:
    """What a reader of committed records finds up to the last stable offset."""
    return await asyncio.to_thread(_read, bootstrap, topic, partitions, "read_committed")


async def written(bootstrap: str, topic: str, partitions: int = 1) -> list[bytes | None]:
    """What is in the log, aborted or open as it may be."""
    return await asyncio.to_thread(_read, bootstrap, topic, partitions, "read_uncommitted")
