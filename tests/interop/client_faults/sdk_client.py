"""The SDK's producer and consumer under faults; arguments and output: see `events`."""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from busway import Consumer, Producer, RebalanceListener
from busway.errors import BuswayError

Started = TypeVar("Started", Producer, Consumer)


def say(kind: str, *words: object) -> None:
    sys.stdout.write(" ".join(map(str, (kind, time.monotonic_ns(), *words))) + "\n")
    sys.stdout.flush()


class Listener(RebalanceListener):
    """Prints its calls."""

    async def on_partitions_assigned(self, assigned: object) -> None:
        say("assigned", len(list(assigned)))  # type: ignore[call-overload]

    async def on_partitions_revoked(self, revoked: object) -> None:
        say("revoked", len(list(revoked)))  # type: ignore[call-overload]

    async def on_partitions_lost(self, lost: object) -> None:
        say("lost", len(list(lost)))  # type: ignore[call-overload]


async def started(make: Callable[[], Started]) -> Started:
    """Start a client until it succeeds: the other libraries connect in the background, without an error."""
    while True:
        client = make()
        try:
            await client.start()
        except BuswayError as problem:
            print(f"not started: {problem}", file=sys.stderr, flush=True)
            await asyncio.sleep(0.5)
        else:
            return client


async def write(
    bootstrap: str, topic: str, partitions: int, pause_s: float, timeout_ms: int, over: asyncio.Event
) -> None:
    """Send until `over`."""

    def acknowledged(value: str, sent: "asyncio.Future[object]") -> None:
        if (problem := sent.exception()) is None:
            say("acknowledged", value)
        else:
            say("failed", value, type(problem).__name__)

    try:
        producer = await started(
            lambda: Producer(bootstrap, linger_ms=0, request_timeout_ms=timeout_ms, delivery_timeout_ms=300_000)
        )
        try:
            number = 0
            while not over.is_set():
                value = str(number)
                sent = await producer.send(topic, value.encode(), partition=number % partitions)
                sent.add_done_callback(lambda done, value=value: acknowledged(value, done))
                number += 1
                await asyncio.sleep(pause_s)
            await producer.flush()
        finally:
            await producer.stop()
    except BuswayError as problem:
        say("ended", "producer", type(problem).__name__)


async def read(bootstrap: str, topic: str, group: str, timeout_ms: int, protocol: str, over: asyncio.Event) -> None:
    """Read until `over`."""
    try:
        options = {"group_id": group, "group_protocol": protocol, "auto_offset_reset": "earliest"}
        consumer = await started(
            lambda: Consumer(
                topic,
                bootstrap_servers=bootstrap,
                auto_commit_interval_ms=1_000,
                request_timeout_ms=timeout_ms,
                listener=Listener(),
                **options,
            )
        )
        try:
            while not over.is_set():
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    for record in records:
                        say("read", (record.value or b"").decode(), record.partition, record.offset)
        finally:
            await consumer.stop()
    except BuswayError as problem:
        print(f"consumer ended: {problem}", file=sys.stderr, flush=True)
        say("ended", "consumer", type(problem).__name__)


async def main(bootstrap: str, topic: str, group: str, *others: str) -> None:
    partitions, pause_ms, timeout_ms = map(int, others[:3])
    written, over = asyncio.Event(), asyncio.Event()
    writer = asyncio.create_task(write(bootstrap, topic, partitions, pause_ms / 1000, timeout_ms, written))
    reader = asyncio.create_task(read(bootstrap, topic, group, timeout_ms, others[3], over))
    await asyncio.to_thread(sys.stdin.readline)
    written.set()
    await writer
    say("done")
    await asyncio.to_thread(sys.stdin.readline)
    over.set()
    await reader


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
