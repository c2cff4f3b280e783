"""What exactly once costs: a service that reads, works and writes, with either guarantee in turns: `python -m benchmarks.exactly_once`.

What lives here: the service and the comparison. What does not: handlers that write nothing, beside other libraries (`handlers`).

As in `handlers`, each turn is a process of its own that is the only member of a new group, and 100,000 small JSON records in four
partitions are there before it starts. Each becomes a dataclass, and one that is published with the same key. The clock runs from the first
record that is handled until the service has stopped with all of them committed, which is checked: that the offset of each partition is its
end, and that of what was written, so many can be read as committed.
"""

import argparse
import asyncio
import json
import logging
import statistics
import subprocess
import sys
import time
from typing import Any, Final
from uuid import uuid4

from benchmarks.handlers import PARTITIONS, TOPIC, TURN_S, Progress, Ride, fill
from benchmarks.subjects import Durability, busway
from busway import Admin, App, NewTopic, read_to_end

GUARANTEES: Final = ("at_least_once", "exactly_once")


async def take_turn(guarantee: Any, bootstrap: str, records: int, concurrency: int) -> dict[str, float]:
    """Handle all records; seconds and seconds of CPU time, how many are committed, and how many of those written are."""
    group, progress = f"bench-{uuid4().hex[:8]}", Progress(records)
    app = App(group, bootstrap)
    rides = app.topic(TOPIC, value=Ride, format="json")
    fares = app.topic(f"{group}-fares", value=Ride, format="json")
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(fares.name, PARTITIONS)])

    @app.publish(fares)
    @app.subscribe(rides, guarantee=guarantee, concurrency=concurrency)
    async def price(ride: Ride) -> Ride:
        progress.one()
        return ride

    async with app:
        await progress.done.wait()
    seconds, cpu_s = time.monotonic() - progress.began, time.process_time() - progress.cpu_began
    async with Admin(bootstrap) as admin:
        committed = sum(found.offset for found in (await admin.list_group_offsets(group)).values())
    written = 0
    async for _ in read_to_end(bootstrap, fares.name, isolation_level="read_committed"):
        written += 1
    return {"seconds": seconds, "cpu_s": cpu_s, "committed": committed, "written": written}


def compare(records: int, rounds: int, concurrency: int) -> None:
    """The turns of both, round by round, and a table of medians."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in GUARANTEES}
    with busway(Durability.OS) as subject:
        asyncio.run(fill(subject.bootstrap_servers, records))
        for number in range(rounds):
            for name in GUARANTEES:
                command = [sys.executable, "-m", "benchmarks.exactly_once", "--turn", name]
                command += ["--bootstrap", subject.bootstrap_servers, "--records", str(records)]
                command += ["--concurrency", str(concurrency)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=TURN_S)
                sample = json.loads(done.stdout)
                if sample["committed"] < records or sample["written"] != records:
                    print(f"{name}: not all of {records}: {sample}", file=sys.stderr)
                found[name].append(sample)
                rate = f"{records / sample['seconds']:,.0f}/s"
                print(f"round {number + 1}, {name}: {rate}", file=sys.stderr, flush=True)
    print("| guarantee | handled and written/s | CPU s per 100,000 | of at_least_once |\n|---|---|---|---|")
    for name in GUARANTEES:
        rate = statistics.median(records / sample["seconds"] for sample in found[name])
        cpu_s = statistics.median(sample["cpu_s"] * 100_000 / records for sample in found[name])
        pairs = zip(found[GUARANTEES[0]], found[name], strict=True)
        ratio = statistics.median(base["seconds"] / mine["seconds"] for base, mine in pairs)
        print(f"| {name} | {rate:,.0f} | {cpu_s:.2f} | {ratio:.2f} |")


def main() -> None:
    """Compare, or take one turn."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--turn", choices=GUARANTEES, help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.turn is None:
        compare(given.records, given.rounds, given.concurrency)
        return
    logging.disable(logging.CRITICAL)
    print(json.dumps(asyncio.run(take_turn(given.turn, given.bootstrap, given.records, given.concurrency))))


if __name__ == "__main__":
    main()
