"""aiokafka: `version`, `produce`, `read`, `member`, `since` (see `tests.interop.clients`)."""

import asyncio
import json
import os
import sys
from typing import Any

import aiokafka

SESSION_MS = int(os.environ.get("BUSWAY_INTEROP_SESSION_MS", "3000"))


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


async def produce(bootstrap: str, topic: str, codec: str) -> None:
    """Write the records on standard input."""
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=True,
        linger_ms=50,
    )
    async with producer:
        sent = []
        for line in sys.stdin:
            record = json.loads(line)
            headers = [(name, value.encode()) for name, value in record["headers"].items()]
            sent.append(
                await producer.send(topic, key=record["key"].encode(), value=record["value"].encode(), headers=headers)
            )
        await asyncio.gather(*sent)


def consumer(bootstrap: str, group: str | None, *topics: str) -> aiokafka.AIOKafkaConsumer:
    """A member of a group that commits by itself."""
    return aiokafka.AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=min(SESSION_MS // 10, 3000),
    )


async def read(bootstrap: str, group: str, count: str, *topics: str) -> None:
    """Read so many records, commit and leave."""
    async with consumer(bootstrap, group, *topics) as reader:
        for _ in range(int(count)):
            show(await reader.getone())
        await reader.commit()


async def member(bootstrap: str, topic: str, group: str) -> None:
    """Read and commit until killed."""
    async with consumer(bootstrap, group, topic) as reader:
        while True:
            polled = await reader.getmany(timeout_ms=200)
            for messages in polled.values():
                for message in messages:
                    show(message)
            if polled:
                try:
                    await reader.commit()
                except aiokafka.errors.CommitFailedError:
                    continue  # a rebalance took the partitions away: another member reads them again


async def since(bootstrap: str, topic: str, timestamp: str) -> None:
    """The first record of partition 0 at or after a time."""
    partition = aiokafka.TopicPartition(topic, 0)
    async with consumer(bootstrap, None) as reader:
        reader.assign([partition])
        offsets = await reader.offsets_for_times({partition: int(timestamp)})
        reader.seek(partition, offsets[partition].offset)
        show(await reader.getone())


async def version() -> None:
    """The version."""
    print(aiokafka.__version__)


if __name__ == "__main__":
    actions = {"produce": produce, "read": read, "member": member, "since": since, "version": version}
    asyncio.run(actions[sys.argv[1]](*sys.argv[2:]))
