"""The connector's thread: all connections to PostgreSQL, the snapshot, the log.

Here: connections, which block, hence a thread; the loop over the log; standby status updates.
Not here: messages (`stream`), rows (`snapshot`), slot and publication (`slots`), the protocol (`replication`).
"""

import logging
import select
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import psycopg
from psycopg import sql

from busway_connect.connector import SourceRecord
from busway_connect.postgres import pgoutput, slots
from busway_connect.postgres.catalog import (
    Connection,
    Table,
    TableId,
    Types,
    read_table,
    read_table_ids,
    read_types,
)
from busway_connect.postgres.handover import Handover, Stopped, size_of
from busway_connect.postgres.positions import InSnapshot, InStream, lsn_number
from busway_connect.postgres.publication import Published, once_each, prepare_publication
from busway_connect.postgres.records import Layout, StaleType, context_headers, layout_table
from busway_connect.postgres.replication import ReplicationConnection
from busway_connect.postgres.settings import Settings
from busway_connect.postgres.snapshot import Snapshot
from busway_connect.postgres.stream import Stream

logger = logging.getLogger("busway.connect.postgres")
_WAIT_S: Final = 0.1
"""Longest sleep in a quiet log, and delay of confirmations and stops."""
_LOOK_EVERY: Final = 251
"""Messages between looks at the clock in a busy log. A prime, so as not to fall inside each of many equally long
transactions.
"""
_STREAMS: Final = frozenset({"initial", "always", "no_data", "never", "when_needed"})
_SNAPSHOTS: Final = frozenset({"initial", "always", "initial_only", "when_needed"})


class Reader:
    """A run of a connector, called in its own thread.

    Args:
        stored: offset of the previous run, if any.
        ready: called after all checks, with an error if the connector cannot run.
    """

    def __init__(
        self,
        settings: Settings,
        stored: InSnapshot | InStream | None,
        handover: Handover,
        *,
        version: str,
        run_id: str,
        notes: dict[str, Any],
        ready: Callable[[Exception | None], None],
    ) -> None:
        self._settings = settings
        self._stored = stored
        self._handover = handover
        self._version = version
        self._notes = notes
        self._ready = ready
        self._headers = context_headers(settings, run_id)
        self._partition: Mapping[str, str] = {"server": settings.prefix}
        self._types = Types()
        self._relations: dict[int, pgoutput.Relation] = {}
        self._former_labels: set[str] = set()
        self._warned: set[TableId] = set()
        self._catalog: Connection | None = None
        self._log: ReplicationConnection | None = None
        self._pending: list[tuple[SourceRecord, int]] = []
        self._pending_bytes = 0
        self._streaming = False
        self._status_sent_at = 0.0
        self._confirmed_lsn_sent = 0
        self._beat_at = time.monotonic()
        self.confirmed_lsn = 0
        """Stored position, written by the event loop, sent to the server by the thread."""

    def run(self) -> None:
        """Run until the handover stops, or to the end of `initial_only`. Errors go to the reader."""
        try:
            self._run()
        except Stopped:
            pass
        except Exception as problem:  # noqa: BLE001 - the thread's top: passed to the handover's reader
            error = slots.translated(problem)
            if error is not problem:
                error.__cause__ = problem
            self._ready(error)
            self._handover.fail(error)
        finally:
            self._close()

    def _run(self) -> None:
        settings = self._settings
        self._catalog = catalog = psycopg.connect(slots.conninfo(settings), autocommit=True)
        self._types.replace(read_types(catalog))
        captured = [table for table in read_table_ids(catalog) if settings.captures(table)]
        if settings.snapshot_mode in _STREAMS:
            published = prepare_publication(catalog, settings, captured)
        else:
            published = once_each(catalog, captured)
        position, exported = self._begin(catalog)
        fresh = not isinstance(self._stored, InStream)
        if isinstance(position, InSnapshot):
            position = self._snapshot(
                position, exported, {table: published[table] for table in captured if table in published}
            )
        else:
            self._ready(None)
        if settings.snapshot_mode in _STREAMS:
            self._stream(position, fresh=fresh)

    # Start

    def _begin(self, catalog: Connection) -> tuple[InSnapshot | InStream, str | None]:
        settings, stored = self._settings, self._stored
        if settings.snapshot_mode not in _STREAMS:
            if isinstance(stored, InStream):
                return stored, None
            return stored or self._new_snapshot(0, 0), None
        slot = slots.find_slot(catalog, settings.slot)
        if slot is not None:
            slots.check_slot(slot, settings)
        # In the thread, not at start, so that the caller can stop it.
        slot = slots.wait_until_free(
            catalog, slot, settings, waiting=lambda: self._ready(None), pause=self._handover.pause
        )
        lsn = None
        if stored is not None:
            lsn = stored.lsn if isinstance(stored, InSnapshot) else stored.commit_lsn
        try:
            slots.require_log(slot, lsn, settings)
        except slots.PositionLost as problem:
            if settings.snapshot_mode != "when_needed":
                raise
            logger.warning("a new snapshot is taken: %s", problem)
            slots.drop_slot(catalog, settings.slot)
            slot, stored = None, None
        exported = None
        if slot is None:
            lsn, exported = self._create_slot()
        else:
            lsn = slot.confirmed_flush_lsn
            self._connect_log()
        if isinstance(stored, InSnapshot):
            return stored, None
        if stored is None and settings.snapshot_mode in _SNAPSHOTS:
            return self._new_snapshot(lsn, lsn), exported
        if stored is not None and settings.snapshot_mode == "always":
            return self._new_snapshot(max(stored.generation + 1, stored.commit_lsn), stored.commit_lsn), exported
        return stored or InStream(generation=lsn, commit_lsn=lsn), exported

    @staticmethod
    def _new_snapshot(generation: int, lsn: int) -> InSnapshot:
        return InSnapshot(generation=generation, lsn=lsn, xid=0, at_us=time.time_ns() // 1000)

    def _connect_log(self) -> ReplicationConnection:
        self._log = ReplicationConnection(slots.conninfo(self._settings))
        return self._log

    def _create_slot(self) -> tuple[int, str]:
        return self._connect_log().create_slot(self._settings.slot, slots.PLUGIN)

    # The snapshot

    def _snapshot(self, position: InSnapshot, exported: str | None, published: Mapping[TableId, Published]) -> InStream:
        catalog, settings = self._catalog, self._settings
        assert catalog is not None
        catalog.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        if exported is not None:
            catalog.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(exported)))
        if position.xid == 0:
            row = catalog.execute(
                "SELECT txid_snapshot_xmax(txid_current_snapshot()), pg_current_wal_lsn()::text"
            ).fetchone()
            assert row is not None
            position = InSnapshot(
                generation=position.generation or lsn_number(row[1]),
                lsn=position.lsn or lsn_number(row[1]),
                xid=row[0],
                at_us=position.at_us,
            )
        self._ready(None)
        tables = [
            table.without(what.left_out)
            for table_id, what in published.items()
            if (table := read_table(catalog, table_id)) is not None
        ]
        snapshot = Snapshot(
            catalog,
            tables,
            position,
            layout=self._layout_of,
            types=self._types,
            headers=self._headers,
            filters={table_id: what.rows for table_id, what in published.items() if what.rows is not None},
        )
        rows = 0
        for record in snapshot.records(self._partition):
            self._hold(record)
            rows += 1
            if self._full(settings.snapshot_fetch_size):
                self._notes["snapshot"] = {"rows": rows, "table": record.offset.get("snapshot_table")}
                self._flush()
        self._notes["snapshot"] = {"rows": rows, "completed": True}
        end = InStream(generation=position.generation, commit_lsn=position.lsn)
        if settings.heartbeat_interval_ms and not rows and settings.snapshot_mode in _STREAMS:
            # Otherwise no offset would record the end of a snapshot of empty tables.
            stream = Stream(end, settings, self._headers, fresh=True)
            self._hold(stream.heartbeat(end.commit_lsn, time.time_ns()))
        self._flush()
        catalog.execute("COMMIT")
        return end

    def _layout_of(self, table: Table) -> Layout:
        layout = Layout(table, self._types, self._settings, self._version, self._former_labels)
        if layout.unmasked:
            logger.warning(
                "%s: columns that hold no text go out as they are, as in Debezium, whatever column.mask.* says of them: %s; leave them out by"
                " column.exclude.list",
                table.id,
                ", ".join(layout.unmasked),
            )
        if layout.left_out:
            logger.warning("%s: columns left out, as their type is not known: %s", table.id, ", ".join(layout.left_out))
        return layout

    # The log

    def _stream(self, position: InStream, *, fresh: bool) -> None:
        settings = self._settings
        stream = Stream(position, settings, self._headers, fresh=fresh)
        assert self._log is not None
        self._log.start(settings.slot, position.commit_lsn, settings.publication)
        self._streaming = True
        seen = 0
        while not self._handover.stopped:
            message = self._log.read()
            if message is None:
                self._idle(self._log, stream)
                continue
            self._take(stream, message[0], pgoutput.decode(message[1]))
            seen += 1
            if seen % _LOOK_EVERY == 0:
                self._beat(self._log, stream)
            if self._full(settings.batch_size) or (seen % _LOOK_EVERY == 0 and self._late()):
                self._flush()
                self._tell(self._log)

    def _late(self) -> bool:
        return time.monotonic() - self._status_sent_at >= self._settings.status_update_interval_ms / 1000

    def _take(self, stream: Stream, lsn: int, message: pgoutput.Any) -> None:
        if isinstance(message, pgoutput.Relation):
            self._relations[message.oid] = message
            self._describe(stream, message)
            return
        asked: set[str] = set()
        while True:
            try:
                records = stream.feed(lsn, message, time.time_ns())
                break
            except StaleType as stale:
                if stale.label in asked:
                    self._former_labels.add(stale.label)
                    continue
                asked.add(stale.label)
            logger.info("an enum has a new label: the types are read again")
            for relation in self._relations.values():
                self._describe(stream, relation)
        for record in records:
            self._hold(record)

    def _describe(self, stream: Stream, relation: pgoutput.Relation) -> None:
        assert self._catalog is not None
        id_ = TableId(schema=relation.schema, name=relation.name)
        if not self._settings.captures(id_):
            stream.layouts[relation.oid] = None
            return
        self._types.replace(read_types(self._catalog))
        columns = [(column.name, column.type_oid, column.type_modifier, column.key) for column in relation.columns]
        table = layout_table(read_table(self._catalog, id_), id_, relation.replica_identity, columns)
        layout = stream.layouts[relation.oid] = self._layout_of(table)
        self._warn_of_keys(layout, {column.name for column in relation.columns if column.key})

    def _warn_of_keys(self, layout: Layout, identity: Collection[str]) -> None:
        """Warn once if deletes lack the key, as the log's old row has only the replica identity."""
        missing = [column for column in layout.key if column not in identity]
        if missing and identity and layout.id not in self._warned:
            self._warned.add(layout.id)
            logger.warning(
                "%s: the replica identity leaves out %s of the key, so that the records of deletes and of changed keys have null or"
                " zero there; ALTER TABLE %s REPLICA IDENTITY FULL, or DEFAULT if this is the primary key",
                layout.id,
                ", ".join(missing),
                layout.id,
            )

    def _idle(self, server: ReplicationConnection, stream: Stream) -> None:
        self._beat(server, stream)
        self._flush()
        if server.reply_wanted or self._late() or self.confirmed_lsn > self._confirmed_lsn_sent:
            self._tell(server)
        select.select([server], [], [], _WAIT_S)

    def _beat(self, server: ReplicationConnection, stream: Stream) -> None:
        """Send a due heartbeat, if more was read than the newest offset says."""
        interval_ms = self._settings.heartbeat_interval_ms
        if not interval_ms or time.monotonic() - self._beat_at < interval_ms / 1000:
            return
        # Between transactions everything sent was handed over.
        read_lsn = max(server.sent_lsn, stream.commit_lsn)
        if stream.between_transactions and read_lsn > stream.offered_lsn:
            self._beat_at = time.monotonic()
            self._hold(stream.heartbeat(read_lsn, time.time_ns()))

    def _tell(self, server: ReplicationConnection) -> None:
        confirmed = self.confirmed_lsn
        server.tell(max(server.sent_lsn, confirmed), confirmed)
        self._confirmed_lsn_sent, self._status_sent_at = confirmed, time.monotonic()
        self._notes["lag_bytes"] = max(0, server.sent_lsn - confirmed)

    def _hold(self, record: SourceRecord) -> None:
        size = size_of(record)
        self._pending.append((record, size))
        self._pending_bytes += size

    def _full(self, records: int) -> bool:
        return len(self._pending) >= records or 0 < self._settings.queue_bytes <= self._pending_bytes

    def _flush(self) -> None:
        if self._pending:
            records, self._pending, self._pending_bytes = self._pending, [], 0
            every_s = self._settings.status_update_interval_ms / 1000
            self._handover.put(records, every_s, self._meanwhile)

    def _meanwhile(self) -> None:
        if self._streaming and self._log is not None:
            self._tell(self._log)

    # Stop

    def cancel(self) -> None:
        """Cancel the current statement; called from another thread."""
        if self._catalog is not None and not self._catalog.closed:
            self._catalog.cancel_safe(timeout=5)

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()
        if self._catalog is not None:
            self._catalog.close()
        if self._settings.drop_slot_on_stop and self._handover.stopped and self._log is not None:
            self._drop_slot()

    def _drop_slot(self) -> None:
        try:
            with psycopg.connect(slots.conninfo(self._settings), autocommit=True) as connection:
                slots.drop_slot(connection, self._settings.slot)
        except psycopg.Error as problem:
            logger.warning("the slot %s could not be dropped: %s", self._settings.slot, problem)
