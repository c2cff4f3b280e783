"""The two brokers under comparison, each in a process of its own.

What lives here: starting Busway and Apache Kafka with one durability, each in a fresh data directory. What does not: what is
measured on them (`workloads`).
"""

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.support.apache_kafka import ApacheKafka

STOP_SECONDS = 30.0


class Durability(Enum):
    """When a record counts as acknowledged."""

    OS = "page cache"
    """In the memory of the operating system: Apache Kafka's default."""
    FLUSH = "flush"
    """On disk: Busway's default."""


BUSWAY = "Busway"
KAFKA = "Apache Kafka"
BUSWAY_PROPERTIES = {Durability.OS: {"log.durability": "os"}, Durability.FLUSH: {}}
KAFKA_PROPERTIES = {Durability.OS: {}, Durability.FLUSH: {"log.flush.interval.messages": "1"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One running broker.

    Attributes:
        begun: `time.monotonic()` just before its process was started.
    """

    name: str
    pid: int
    bootstrap_servers: str
    begun: float


@contextlib.contextmanager
def busway(durability: Durability) -> Iterator[Subject]:
    """Busway as `python -m busway_bus server.properties` starts it; ended, and its data removed, on leaving."""
    folder = Path(tempfile.mkdtemp(prefix="busway-bench-"))
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder / "data"),
        "group.initial.rebalance.delay.ms": "0",
        **BUSWAY_PROPERTIES[durability],
    }
    properties = folder / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    begun = time.monotonic()
    log = folder / "server.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "busway_bus", str(properties)], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None
    try:
        said = process.stdout.readline().split()
        if said[:1] != ["serving"]:
            raise RuntimeError(f"Busway did not start:\n{log.read_text()[-2000:]}")
        try:
            yield Subject(name=BUSWAY, pid=process.pid, bootstrap_servers=said[1], begun=begun)
        except BaseException:
            sys.stderr.write(log.read_text()[-2000:])
            raise
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def apache_kafka(durability: Durability) -> Iterator[Subject]:
    """Apache Kafka 4.3.1 with its own defaults; `begun` is after its data directory was formatted."""
    with ApacheKafka(KAFKA_PROPERTIES[durability]) as broker:
        begun = time.monotonic() - broker.start_seconds
        yield Subject(name=KAFKA, pid=broker.pid, bootstrap_servers=broker.bootstrap_servers, begun=begun)


START = {BUSWAY: busway, KAFKA: apache_kafka}
"""How each is started, in the order of their turns."""
