"""The audit of a running bus: a reader without a group, behind everything that is committed.

Here: reading, and which offsets the service has committed.
Not here: the comparison (`audit`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Final

from busway import App, Consumer, TopicPartition
from busway.admin.admin import Admin
from busway.app.serdes import Serdes
from busway.errors import BuswayError
from gettaxi.audit import COMMANDS, POSITIONS, RIDERS, RIDES, Audit

PAUSE_S: Final = 0.25
"""Between a failed read and the next; brokers are killed meanwhile."""
_POLL_MS: Final = 200.0
_AT_ONCE: Final = 500
_LATEST: Final = -1
logger: logging.Logger = logging.getLogger("gettaxi.audit")


class Auditing:
    """Feeds an audit until it is stopped.

    Args:
        audit: fed.
        app: running; decodes records.
        bootstrap_servers: of the bus.
        partitions: of each topic.
        group: of the service.
    """

    def __init__(self, audit: Audit, app: App, bootstrap_servers: str, *, partitions: int, group: str) -> None:
        self.audit = audit
        self._serdes: Serdes = app.serdes
        self._bootstrap_servers = bootstrap_servers
        self._group = group
        self._progress = asyncio.Event()
        self._places = [
            TopicPartition(topic, number)
            for topic in (POSITIONS, RIDERS, COMMANDS, RIDES)
            for number in range(partitions)
        ]

    async def run(self) -> None:
        """Read until cancelled."""
        async with (
            Consumer(
                bootstrap_servers=self._bootstrap_servers,
                client_id="gettaxi-audit",
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                enable_auto_commit=False,
            ) as consumer,
            Admin(self._bootstrap_servers, client_id="gettaxi-audit") as admin,
        ):
            await consumer.assign(self._places)
            asking = asyncio.ensure_future(self._ask(admin))
            try:
                while True:
                    try:
                        await self._read(consumer)
                    except BuswayError as problem:  # brokers are killed here; the next read may succeed
                        logger.warning("the audit cannot read: %s", problem)
                        await asyncio.sleep(PAUSE_S)
            finally:
                asking.cancel()
                await asyncio.wait([asking])

    async def _read(self, consumer: Consumer) -> None:
        for records in (await consumer.getmany(timeout_ms=_POLL_MS, max_records=_AT_ONCE)).values():
            for record in records:
                self.audit.record(await self._serdes.decode(record))
        # Transaction markers take offsets, too.
        for place in self._places:
            position = consumer.known_position(place)
            if position is not None:
                self.audit.passed(place.topic, place.partition, position)
        self._progress.set()
        self._progress = asyncio.Event()
        await asyncio.sleep(0)

    async def _ask(self, admin: Admin) -> None:
        while True:
            with contextlib.suppress(BuswayError):
                await self._compare(admin)
            await asyncio.sleep(1.0)

    async def _compare(self, admin: Admin) -> None:
        """Compare committed requests with rides, once all rides of that moment are read."""
        committed = await admin.list_group_offsets(self._group)
        handled = {place.partition: at.offset for place, at in committed.items() if place.topic == COMMANDS}
        ends = await self._ends(admin)
        await self._reach(ends)
        self.audit.handled(handled)

    async def _ends(self, admin: Admin) -> Mapping[TopicPartition, int]:
        return await admin.list_offsets({place: _LATEST for place in self._places if place.topic == RIDES})

    async def _reach(self, ends: Mapping[TopicPartition, int]) -> None:
        while any(self.audit.next_offset(place.topic, place.partition) < end for place, end in ends.items()):
            await self.progress()

    async def progress(self) -> None:
        """Return after the next read, be there records or not."""
        await self._progress.wait()

    async def caught_up(self) -> None:
        """Return when everything that is in the topics now has been read."""
        async with Admin(self._bootstrap_servers, client_id="gettaxi-audit") as admin:
            while True:
                try:
                    ends = await admin.list_offsets(dict.fromkeys(self._places, _LATEST))
                    break
                except BuswayError:
                    await asyncio.sleep(PAUSE_S)
            await self._reach(ends)
            await self._compare(admin)
