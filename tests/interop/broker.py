"""The broker under test: Busway in a process of its own, three nodes of it, or, to check the tests, Apache Kafka.

Here: choosing one, with one interface.
Not here: anything about clients.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tests.support.apache_kafka import ApacheKafka
from tests.support.busway_nodes import BuswayNodes
from tests.support.busway_process import BuswayProcess

CHOICE = "BUSWAY_INTEROP_BROKER"
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}


class Broker(Protocol):
    """What the tests know of a broker."""

    bootstrap_servers: str
    bootstrap_controllers: str

    @property
    def data_dir(self) -> Path:
        """The folder with one folder for each partition."""

    def start(self) -> None:
        """Serve, or raise."""

    def kill(self) -> None:
        """SIGKILL; `start` goes on with the same data at the same address."""

    def stop(self) -> None:
        """End, and remove the data."""


def is_apache_chosen() -> bool:
    """Whether the environment asks for Apache Kafka."""
    return os.environ.get(CHOICE, "busway") == "apache"


def chosen_broker(settings: Mapping[str, str] | None = None) -> Broker:
    """The broker that the environment asks for; `settings` beside those of the suite."""
    chosen = {**SETTINGS, **(settings or {})}
    if is_apache_chosen():
        return ApacheKafka(chosen)
    return three_nodes(settings) if os.environ.get(CHOICE) == "nodes" else BuswayProcess(chosen, controller=True)


def three_nodes(settings: Mapping[str, str] | None = None) -> Broker:
    """Three nodes of Busway in the place of a broker, each with `settings` beside those of the suite; `kill` takes one after the other."""
    return BuswayNodes({**SETTINGS, **(settings or {})})
