"""The two systems that a run can have: Busway and Apache Kafka 4.3.1, with the same settings.

Here: formatting a node, its command, the sign that it serves.
Not here: the processes (`cluster`).
"""

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from busway_bus.formatting import format_node
from busway_bus.kernel.config import BrokerConfig
from tests.support.apache_kafka import java_command
from tests.support.programs import spawn_async


class System(Protocol):
    """What a run needs of a system.

    Attributes:
        serving: bytes in a node's output once it serves.
        stopped: exit code after SIGTERM.
        durable: acknowledged means synced, at default settings.
    """

    name: str
    serving: bytes
    stopped: int
    durable: bool

    async def format(self, properties: Path, settings: Mapping[str, str], cluster_id: str) -> None:
        """Prepare a node's data directory."""

    def command(self, properties: Path) -> Sequence[str]:
        """Return the command that runs a node."""


class Busway:
    """Busway, from this checkout."""

    name = "busway"
    serving = b"serving "
    stopped = 0
    durable = True

    async def format(self, properties: Path, settings: Mapping[str, str], cluster_id: str) -> None:
        """Format in this process."""
        await asyncio.to_thread(format_node, BrokerConfig.from_properties(dict(settings)), cluster_id)

    def command(self, properties: Path) -> Sequence[str]:
        return sys.executable, "-m", "busway_bus", str(properties)


class Kafka:
    """Apache Kafka 4.3.1, with its own defaults for when it syncs."""

    name = "kafka"
    serving = b"Kafka Server started"
    stopped = 128 + signal.SIGTERM
    durable = False

    async def format(self, properties: Path, settings: Mapping[str, str], cluster_id: str) -> None:
        """Run kafka-storage.

        Raises:
            RuntimeError: it failed.
        """
        command = java_command("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties))
        process = await spawn_async(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        output, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"kafka-storage failed: {output.decode(errors='replace')}")

    def command(self, properties: Path) -> Sequence[str]:
        return java_command("kafka.Kafka", str(properties), options=("-Xmx384m", "-Xms384m"))


SYSTEMS: Final[Mapping[str, System]] = {system.name: system for system in (Busway(), Kafka())}
