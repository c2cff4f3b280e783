"""The two brokers under comparison, each in a process of its own.

Here: starting Busway and Apache Kafka with one durability, each in a fresh data directory.
Not here: what is measured on them (`workloads`).
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tests.support.apache_kafka import ApacheKafka
from tests.support.busway_process import BuswayProcess

from benchmarks.machine import cpu_seconds, resident_mib


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


class Broker(Protocol):
    """A process that is a broker."""

    bootstrap_servers: str

    @property
    def pid(self) -> int:
        """Of the process."""

    def kill(self) -> None:
        """SIGKILL; `start` goes on with the same data at the same address."""

    def start(self) -> None:
        """Serve, or raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A running broker, or the running brokers of a cluster.

    Attributes:
        begun: `time.monotonic()` just before the first process was started.
    """

    name: str
    brokers: Sequence[Broker]
    begun: float

    @property
    def broker(self) -> Broker:
        """The only broker."""
        (broker,) = self.brokers
        return broker

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def cpu_seconds(self) -> float:
        """User and system time of all processes since each was started."""
        return sum(cpu_seconds(broker.pid) for broker in self.brokers)

    def resident_mib(self) -> float:
        """Resident memory of all processes in MiB."""
        return sum(resident_mib(broker.pid) for broker in self.brokers)


Start = Callable[[Durability], "contextlib.AbstractContextManager[Subject]"]


@contextlib.contextmanager
def busway(durability: Durability) -> Iterator[Subject]:
    """Busway as `python -m busway_bus server.properties` starts it; ended, and its data removed, on leaving."""
    broker = BuswayProcess({"group.initial.rebalance.delay.ms": "0", **BUSWAY_PROPERTIES[durability]})
    begun = time.monotonic()
    broker.start()
    try:
        yield Subject(name=BUSWAY, brokers=(broker,), begun=begun)
    finally:
        broker.stop()


@contextlib.contextmanager
def apache_kafka(durability: Durability) -> Iterator[Subject]:
    """Apache Kafka 4.3.1 with its own defaults; `begun` is after its data directory was formatted."""
    with ApacheKafka(KAFKA_PROPERTIES[durability], options=()) as broker:
        yield Subject(name=KAFKA, brokers=(broker,), begun=time.monotonic() - broker.start_seconds)


START: Mapping[str, Start] = {BUSWAY: busway, KAFKA: apache_kafka}
"""How each is started, in the order of their turns."""
