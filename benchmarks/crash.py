"""From `kill -9` of a consumer until the next record is handled, with five clients: `python -m benchmarks.crash`.

Here: killing members and starting them again, the clock, the table.
Not here: the clients (`tests.interop.clients`, `crash_service`), the brokers (`subjects`).

Each client has a topic of one partition, into which 20 records a second are written, and a group of one member with a session of 45 s and
heartbeats every 3 s; Busway's service has its defaults. A member reads for 8 to 23 s, is killed with SIGKILL and is started again at once. The clock
runs from the kill until the new process has printed a record, so that it holds the start of the process; the column "start" is that of
the first process, which no member is in the way of. All clients run at the same time.
"""

import argparse
import datetime as dt
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.clients import LONG_SESSION_MS, SESSION_VARIABLE, FranzGo, JavaConsole, Program
from tests.support.programs import spawn
from tools.jars import ROOT

from benchmarks.clients import LoadFailed
from benchmarks.machine import describe, load_average
from benchmarks.subjects import BUSWAY, KAFKA, START, Durability

KILLS: Final = 30
EVERY_S: Final = 0.05
READS_S: Final = (8.0, 23.0)
"""How long a member reads before it is killed: the first two heartbeats are over, and each moment between two is as likely, whether they come
every 3 s or every 5 s."""
PATIENCE_S: Final = 180.0
CLIENTS: Final = (JavaConsole(), Program("librdkafka"), Program("aiokafka"), FranzGo("franz-go"))


class Service(Program):
    """Busway's `App`."""

    def command(self) -> list[str]:
        """As a module of ours."""
        return [sys.executable, "-m", "benchmarks.crash_service"]

    def member_command(self, bootstrap: str, topic: str, group: str) -> list[str]:
        """The service takes no other action."""
        return [*self.command(), bootstrap, topic, group]


@dataclass(slots=True)
class Figures:
    """Seconds from the start of the first process, and from each kill, to a record."""

    start_s: float = 0.0
    kills_s: list[float] = field(default_factory=list)

    def row(self, subject: str, client: str) -> str:
        """A line of the table."""
        shown = [statistics.median(self.kills_s), percentile(self.kills_s, 99), self.start_s]
        return (
            f"| {subject} | {client} | {len(self.kills_s)} | " + " | ".join(f"{figure:.1f}" for figure in shown) + " |"
        )


def percentile(values: list[float], percent: int) -> float:
    """The smallest value that so many percent of them do not exceed; the largest one of fewer than 100, for 99."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


class Member:
    """One process; `records` counts what it has handled."""

    def __init__(self, command: list[str]) -> None:
        self._process = spawn(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1)
        self._printed = threading.Event()
        self.records = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(("{", "CreateTime:")):
                self.records += 1
                self._printed.set()
        self._printed.set()

    def handled(self) -> None:
        """Return when a record was handled.

        Raises:
            LoadFailed: none was, in time.
        """
        if not self._printed.wait(PATIENCE_S) or not self.records:
            raise LoadFailed(f"{self._process.args!r} has ended, or handled no record within {PATIENCE_S:.0f} s")

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self._process.kill()
        self._process.wait()


def measure(client: Any, bootstrap: str, kills: int, seed: int) -> Figures:
    """Kill the member of one client again and again."""
    chance, figures = random.Random(f"{client.name}/{seed}"), Figures()
    command = client.member_command(bootstrap, client.name, client.name)
    began = time.monotonic()
    member = Member(command)
    try:
        member.handled()
        figures.start_s = time.monotonic() - began
        for _ in range(kills):
            time.sleep(chance.uniform(*READS_S))
            began = time.monotonic()
            member.kill()
            member = Member(command)
            member.handled()
            figures.kills_s.append(time.monotonic() - began)
            print(f"{time.strftime('%H:%M:%S')} {client.name} {figures.kills_s[-1]:.2f} s", file=sys.stderr, flush=True)
    finally:
        member.kill()
    return figures


def write(bootstrap: str, topics: list[str], over: threading.Event) -> None:
    """Write records to all topics, in turns, until it is over."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in itertools.count():
        for topic in topics:
            producer.produce(topic, key=str(number), value=str(number), headers={"n": "1"})
        producer.poll(0)
        if over.wait(EVERY_S):
            break
    producer.flush(10)


def run(subject: str, clients: list[Any], kills: int, seed: int) -> dict[str, Figures]:
    """All clients on one broker."""
    with START[subject](Durability.FLUSH) as broker, ThreadPoolExecutor(len(clients) + 1) as threads:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = [client.name for client in clients]
        for done in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
            done.result(30)
        over = threading.Event()
        writing = threads.submit(write, broker.bootstrap_servers, topics, over)
        try:
            running = {
                client.name: threads.submit(measure, client, broker.bootstrap_servers, kills, seed)
                for client in clients
            }
            return {name: work.result() for name, work in running.items()}
        finally:
            over.set()
            writing.result()


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write the JSON."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m benchmarks.crash", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--kills", type=int, default=KILLS, help=f"kills of each client on Busway (default {KILLS})")
    parser.add_argument("--kafka-kills", type=int, default=0, help="kills on Apache Kafka, 50 s each (default 0)")
    parser.add_argument("--only", default="", metavar="NAME", help="only clients with this in their name")
    parser.add_argument("--seed", type=int, default=1, help="seed of the times of the kills (default 1)")
    options = parser.parse_args(arguments)
    clients = [client for client in (Service("Busway"), *CLIENTS) if options.only in client.name]
    if not clients:
        parser.error(f"no client has {options.only!r} in its name")
    os.environ[SESSION_VARIABLE] = str(LONG_SESSION_MS)
    now = dt.datetime.now(tz=dt.UTC)
    machine = {"date": now.isoformat(timespec="seconds"), **describe()}
    results: dict[str, dict[str, Figures]] = {}
    for subject, kills in ((BUSWAY, options.kills), (KAFKA, options.kafka_kills)):
        if kills:
            results[subject] = run(subject, clients, kills, options.seed)
    machine["load average at the end"] = load_average()
    target = ROOT / ".cache" / "bench" / f"crash-{now:%Y%m%d-%H%M%S}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    seconds = {
        subject: {name: {"start_s": times.start_s, "kills_s": times.kills_s} for name, times in subject_times.items()}
        for subject, subject_times in results.items()
    }
    target.write_text(json.dumps({"machine": machine, "seconds": seconds}, indent=1) + "\n")
    print("\n".join(f"{name}: {value}" for name, value in machine.items()))
    print("\n| broker | client | kills | p50, s | p99, s | start, s |\n|---|---|---|---|---|---|")
    for subject, subject_times in results.items():
        print("\n".join(times.row(subject, name) for name, times in subject_times.items()))
    print(f"\nwritten to {Path(os.path.relpath(target, ROOT))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
