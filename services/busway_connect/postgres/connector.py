"""Debezium's PostgreSQL connector: the `Source` for the runtime.

Here: settings, the thread's start, records, confirmations.
Not here: blocking work (`reader`).
"""

import asyncio
import contextlib
import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg

from busway_connect.connector import Config, ConfigInvalid, Offset, Source, SourceRecord
from busway_connect.postgres.handover import Handover
from busway_connect.postgres.positions import InSnapshot, InStream, order_of, read_offset
from busway_connect.postgres.reader import Reader
from busway_connect.postgres.settings import SETTINGS, Settings, parse, problems, serves
from busway_connect.postgres.unsupported_settings import FIXED, INERT, INSTEAD

logger = logging.getLogger("busway.connect.postgres")
READ_WAIT_S: Final = 0.5
STOP_TIMEOUT_S: Final = 30.0


class PostgresConnector(Source):
    """Reads a database's rows, then its changes, in Debezium's envelope. Guarantees: see `busway_connect.postgres`."""

    class_names = ("io.debezium.connector.postgresql.PostgresConnector", "postgres")
    settings = SETTINGS
    fixed = FIXED
    inert = INERT
    instead = INSTEAD

    def __init__(self, name: str, config: Config) -> None:
        super().__init__(name, config)
        self._settings: Settings | None = None
        self._handover: Handover | None = None
        self._reader: Reader | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def serves(cls, name: str) -> bool:
        return serves(name)

    @classmethod
    def validate(cls, config: Config) -> dict[str, str]:
        return problems(config)

    @classmethod
    def offset_problem(cls, config: Config, partition: Mapping[str, Any], offset: Offset) -> str | None:
        """Check the partition `{"server": PREFIX}` and a stored or Debezium's offset."""
        wanted = {"server": config.get("topic.prefix")}
        if dict(partition) != wanted:
            return f"the partition is {wanted}, not {dict(partition)}"
        try:
            read_offset(offset)
        except ValueError as problem:
            return str(problem)
        return None

    async def start(self, offsets: Sequence[tuple[Mapping[str, Any], Offset]]) -> None:
        """Check the server, and continue after the offset. A first start creates publication and slot, and takes a
        snapshot.

        Raises:
            ConfigInvalid: an invalid setting, a table missing in the publication, a missing right.
            PositionLost: the slot lacks the log after the offset.
            Retriable: the server is unreachable.
        """
        settings = self._settings = parse(self.config)
        stored = self._stored(offsets, settings)
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def tell(problem: Exception | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_settle, ready, problem)

        self._handover = Handover(settings.queue_size, settings.queue_bytes)
        self._reader = Reader(
            settings,
            stored,
            self._handover,
            version=self.version,
            run_id=str(uuid.uuid4()),
            notes=self.progress.notes,
            ready=tell,
        )
        self._thread = threading.Thread(target=self._reader.run, name=f"postgres {self.name}", daemon=True)
        self._thread.start()
        await ready

    @staticmethod
    def _stored(
        offsets: Sequence[tuple[Mapping[str, Any], Offset]], settings: Settings
    ) -> InSnapshot | InStream | None:
        for partition, offset in offsets:
            if partition.get("server") == settings.prefix:
                try:
                    position = read_offset(offset)
                except ValueError as problem:
                    raise ConfigInvalid({"topic.prefix": str(problem)}) from problem
                if isinstance(position, InSnapshot) and position.last:
                    return InStream(generation=position.generation, commit_lsn=position.lsn)
                return position
        return None

    async def read(self) -> Sequence[SourceRecord]:
        """Return the next records in the log's order.

        Raises:
            Retriable: the server became unreachable, or another reader kept the slot for too long.
            PositionLost: as `start`, after waiting for the slot.
            Unreadable: a value has no form in a record.
        """
        assert self._handover is not None, "read before start"
        assert self._settings is not None
        return await self._handover.take(self._settings.batch_size, READ_WAIT_S)

    def position(self, offset: Offset) -> Sequence[int | str] | None:
        """Return the order of records; None for a table whose key has no order."""
        return order_of(offset)

    async def committed(self, offset: Offset) -> None:
        """Let the server discard the log of wholly stored transactions."""
        if self._reader is not None:
            position = read_offset(offset)
            if isinstance(position, InStream):
                self._reader.confirmed_lsn = max(self._reader.confirmed_lsn, position.commit_lsn)

    async def stop(self) -> None:
        """End the thread and all connections; with `slot.drop.on.stop` drop the slot."""
        thread, self._thread = self._thread, None
        if thread is None or self._handover is None or self._reader is None:
            return
        self._handover.stop()
        reader = self._reader
        with contextlib.suppress(psycopg.Error):
            await asyncio.to_thread(reader.cancel)
        await asyncio.to_thread(thread.join, STOP_TIMEOUT_S)
        if thread.is_alive():
            logger.warning("%s: its connections did not end within %s s", self.name, STOP_TIMEOUT_S)


def _settle(ready: "asyncio.Future[None]", problem: Exception | None) -> None:
    if ready.done():
        return
    if problem is None:
        ready.set_result(None)
    else:
        ready.set_exception(problem)
