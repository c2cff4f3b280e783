"""Handlers a second: `busway.App` beside FastStream, on the same broker, in turns: `python -m benchmarks.handlers`.

Here: a service of one handler in each library, and the comparison.
Not here: brokers side by side (`brokers`).

Each turn is a process of its own that is the only member of a new group; 100,000 small JSON records in four partitions are there before it
starts and become dataclasses. The clock runs from the first record that is handled until the service has stopped with all of them
committed, which is checked. FastStream commits before it calls the handler by default, so that a crash loses records; `at least once`
is what it calls `AckPolicy.NACK_ON_ERROR`, the equal of Busway's only way; it commits record by record, so its turns are a tenth as long.
"""

import argparse
import asyncio
import dataclasses
import json
import logging
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

from benchmarks.subjects import Durability, busway
from busway import Admin, App, NewTopic, Producer

TOPIC: Final = "rides"
PARTITIONS: Final = 4
TURN_S: Final = 300.0
Turn = Callable[[str, str, "Progress"], Awaitable[None]]


@dataclasses.dataclass
class Ride:
    """What is handled."""

    id: str
    zone: str
    stars: int


class Progress:
    """Counts what is handled."""

    def __init__(self, records: int) -> None:
        self.left = records
        self.began = 0.0
        self.cpu_began = 0.0
        self.done = asyncio.Event()

    def count_record(self) -> None:
        """Count a handled record; the last one sets `done`."""
        if not self.began:
            self.began, self.cpu_began = time.monotonic(), time.process_time()
        self.left -= 1
        if not self.left:
            self.done.set()


async def with_busway(bootstrap: str, group: str, progress: Progress) -> None:
    """`busway.App` as it comes."""
    app = App(group, bootstrap)
    rides = app.topic(TOPIC, value=Ride, format="json")

    @app.subscribe(rides)
    async def handle(ride: Ride) -> None:
        progress.count_record()

    async with app:
        await progress.done.wait()


async def _with_faststream(broker: Any, group: str, progress: Progress, **options: Any) -> None:
    @broker.subscriber(TOPIC, group_id=group, auto_offset_reset="earliest", **options)
    async def handle(ride: Ride) -> None:
        progress.count_record()

    async with broker:
        await broker.start()
        await progress.done.wait()


async def with_aiokafka(bootstrap: str, group: str, progress: Progress) -> None:
    """FastStream on aiokafka as it comes."""
    from faststream.kafka import KafkaBroker

    await _with_faststream(KafkaBroker(bootstrap, logger=None), group, progress)


async def with_aiokafka_after(bootstrap: str, group: str, progress: Progress) -> None:
    """FastStream on aiokafka, committing after the handler."""
    from faststream import AckPolicy
    from faststream.kafka import KafkaBroker

    broker = KafkaBroker(bootstrap, logger=None)
    await _with_faststream(broker, group, progress, ack_policy=AckPolicy.NACK_ON_ERROR)


async def with_confluent(bootstrap: str, group: str, progress: Progress) -> None:
    """FastStream on librdkafka as it comes."""
    from faststream.confluent import KafkaBroker

    await _with_faststream(KafkaBroker(bootstrap, logger=None), group, progress)


async def with_confluent_after(bootstrap: str, group: str, progress: Progress) -> None:
    """FastStream on librdkafka, committing after the handler."""
    from faststream import AckPolicy
    from faststream.confluent import KafkaBroker

    broker = KafkaBroker(bootstrap, logger=None)
    await _with_faststream(broker, group, progress, ack_policy=AckPolicy.NACK_ON_ERROR)


OURS: Final = "Busway, at least once"
TURNS: Final[dict[str, Turn]] = {
    OURS: with_busway,
    "FastStream (aiokafka), at least once": with_aiokafka_after,
    "FastStream (aiokafka), default": with_aiokafka,
    "FastStream (confluent), at least once": with_confluent_after,
    "FastStream (confluent), default": with_confluent,
}
SHORT: Final = 10
"""The turns of those that commit record by record are so many times shorter."""


def share(name: str, records: int) -> int:
    """How many records a service handles in its turn."""
    return records // SHORT if name != OURS and name.endswith("at least once") else records


async def take_turn(name: str, bootstrap: str, records: int) -> dict[str, float]:
    """Handle all records; seconds and seconds of CPU time, and how many are committed."""
    group, progress = f"bench-{uuid4().hex[:8]}", Progress(records)
    await TURNS[name](bootstrap, group, progress)
    seconds, cpu_s = time.monotonic() - progress.began, time.process_time() - progress.cpu_began
    async with Admin(bootstrap) as admin:
        committed = sum(committed.offset for committed in (await admin.list_group_offsets(group)).values())
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "cpu_s": cpu_s, "committed": committed, "memory_mb": memory_mb}


async def fill(bootstrap: str, records: int) -> None:
    """The records, by key in four partitions."""
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
    async with Producer(bootstrap, linger_ms=5) as producer:
        for number in range(records):
            value = json.dumps({"id": f"r{number}", "zone": "north", "stars": number % 5}).encode()
            await producer.send(TOPIC, value, b"k%d" % (number % 1000))
        await producer.flush()


def compare(records: int, rounds: int, names: list[str]) -> None:
    """The turns of all, round by round, and a table of medians."""
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with busway(Durability.OS) as subject:
        asyncio.run(fill(subject.bootstrap_servers, records))
        for number in range(rounds):
            for name in names:
                command = [sys.executable, "-m", "benchmarks.handlers", "--turn", name]
                own_records = share(name, records)
                command += ["--bootstrap", subject.bootstrap_servers, "--records", str(own_records)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=TURN_S)
                sample = json.loads(done.stdout)
                if sample["committed"] < own_records:
                    print(f"{name}: only {sample['committed']:.0f} of {own_records} are committed", file=sys.stderr)
                samples[name].append(
                    {key: value / own_records for key, value in sample.items()} | {"memory_mb": sample["memory_mb"]}
                )
                print(
                    f"round {number + 1}, {name}: {own_records / sample['seconds']:,.0f}/s", file=sys.stderr, flush=True
                )
    print("| service | handled/s | CPU s per 100,000 | peak MB | Busway is times as fast |\n|---|---|---|---|---|")
    for name in names:
        rate = statistics.median(1 / sample["seconds"] for sample in samples[name])
        cpu_s = statistics.median(sample["cpu_s"] * 100_000 for sample in samples[name])
        memory_mb = statistics.median(sample["memory_mb"] for sample in samples[name])
        pairs = zip(samples[OURS], samples[name], strict=True) if OURS in samples else ()
        ratios = [other["seconds"] / ours["seconds"] for ours, other in pairs]
        ratio = f"{statistics.median(ratios):.2f}" if ratios else ""
        print(f"| {name} | {rate:,.0f} | {cpu_s:.2f} | {memory_mb:.0f} | {ratio} |")


def main() -> None:
    """Compare, or take one turn."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.partition(":")[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=list(TURNS), action="append", help="only these services; repeatable")
    parser.add_argument("--turn", choices=list(TURNS), help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.turn is None:
        compare(given.records, given.rounds, given.only or list(TURNS))
        return
    logging.disable(logging.CRITICAL)
    print(json.dumps(asyncio.run(take_turn(given.turn, given.bootstrap, given.records))))


if __name__ == "__main__":
    main()
