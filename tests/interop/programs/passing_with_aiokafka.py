"""aiokafka passes records on, exactly once (see `tests.interop.judges.loops`).

It sends offsets in a group's name without saying which member it is, so the group cannot refuse a zombie: its instances have partitions of
their own, and an id of their own that a new instance takes over, as was the way before KIP-447.
"""

import asyncio
import signal
import sys
from typing import Any

import aiokafka
from aiokafka.errors import KafkaError, ProducerFenced

from tests.support.judging.lines import line


class Loop:
    """One instance."""

    def __init__(self, *arguments: str) -> None:
        bootstrap, self.source, self.target, self.group, self.id, self.process, size, protocol = arguments
        kind, _, numbers = protocol.partition(":")
        assert kind == "assigned", protocol
        self.partitions = [aiokafka.TopicPartition(self.source, int(number)) for number in numbers.split(",")]
        self.size = int(size)
        self.ending = asyncio.Event()
        self.consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        self.producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=self.id, transaction_timeout_ms=5_000
        )

    def tell(self, f: str = "transaction", **fields: Any) -> None:
        """A line of the history."""
        sys.stdout.write(line(f, self.process, **fields))
        sys.stdout.flush()

    async def run(self) -> None:
        """Until stopped."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.ending.set)
        self.tell("init_producer", event="invoke", id="init", transactional_id=self.id)
        await self.producer.start()
        self.tell("init_producer", event="ok", id="init")
        self.consumer.assign(self.partitions)
        await self.consumer.start()
        attempt = 0
        while not self.ending.is_set():
            polled = await self.consumer.getmany(timeout_ms=200, max_records=self.size)
            if polled:
                attempt += 1
                await self.pass_on(attempt, polled)
        await self.consumer.stop()
        await self.producer.stop()

    async def pass_on(self, attempt: int, polled: dict[Any, list[Any]]) -> None:
        """All of it in one transaction, or nothing."""
        records = [each for records in polled.values() for each in records]
        values = [
            [
                f"{self.target}-{each.partition}",
                f"{each.value.decode()}~{self.process}.{attempt}",
                f"{self.source}-{each.partition}@{each.offset}",
            ]
            for each in records
        ]
        offsets = {place: records[-1].offset + 1 for place, records in polled.items()}
        named = {f"{place.topic}-{place.partition}": offset for place, offset in offsets.items()}
        fields: dict[str, Any] = {"values": values, "group": self.group, "offsets": named}
        self.tell(event="invoke", id=attempt, transactional_id=self.id, **fields)
        asked = False
        try:
            await self.producer.begin_transaction()
            for each, (_, value, _) in zip(records, values, strict=True):
                await self.producer.send(self.target, value=value.encode(), key=each.key, partition=each.partition)
            await self.producer.send_offsets_to_transaction(offsets, self.group)
            self.tell(event="asked", id=attempt)
            asked = True
            await self.producer.commit_transaction()
        except KafkaError as problem:
            # Where a commit has failed it is unknown; a new instance of this id finds out from the group's offsets.
            self.tell(event="info" if asked else "fail", id=attempt, problem=repr(problem))
            sys.stderr.write(f"{self.process}: {problem!r}\n")
            if asked or isinstance(problem, ProducerFenced):
                sys.exit(3)
            await self.producer.abort_transaction()
            for place, taken in polled.items():
                self.consumer.seek(place, taken[0].offset)
        else:
            self.tell(event="ok", id=attempt)


async def main() -> None:
    """The clients are made where a loop runs. What this client does not get over ends it; a new one takes over."""
    try:
        await Loop(*sys.argv[1:]).run()
    except KafkaError as problem:
        sys.stderr.write(f"{problem!r}\n")
        sys.exit(3)


if __name__ == "__main__":
    asyncio.run(main())
