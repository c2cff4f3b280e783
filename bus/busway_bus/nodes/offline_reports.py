"""Reports of partitions that this broker cannot serve, or can serve again.

Here: when they are sent, and again after failures.
Not here: which partitions (`replication.local_partitions`), what follows (`controller.leaders`).
"""

import asyncio
import logging

from busway_bus.controller.controller import ITSELF, Controller
from busway_bus.quorum.metadata_images import Published
from busway_bus.replication.local_partitions import LocalPartitions
from busway_protocol.errors import KafkaError

logger = logging.getLogger("busway.node")


class OfflineReports:
    """Sends reports to the controller. Each failure is logged once."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._due = asyncio.Event()
        self._warned: set[str] = set()

    def follow(self, images: Published, local: LocalPartitions) -> None:
        """Send a report, where one is due, after each new image."""
        images.watch(lambda: self._due.set() if local.report() else None)

    async def send(self, local: LocalPartitions) -> None:
        report = local.report()
        if report is not None:
            try:
                await self._controller.request(report, ITSELF)
            except KafkaError as problem:
                self.postponed("which partitions are offline cannot be written down yet: %s", problem)

    async def run(self, local: LocalPartitions) -> None:
        """Send reports when they are due; runs until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            await self.send(local)

    def postponed(self, text: str, problem: KafkaError) -> None:
        """Log what is tried again later."""
        line = text % problem
        if line not in self._warned:
            self._warned.add(line)
            logger.error(line)
