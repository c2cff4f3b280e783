"""`app.table(…)`: state of a service from its events, in memory and in a compacted topic.

Here: `Table`: changing it as part of a handler's work.
Not here: rows (`rows`), restoring and releasing them (`copies`), whole tables (`global_table`).

Partition n of the table belongs to partition n of the handlers' topics: its new owner first restores the rows. A change
is in memory at once and is written when the handler returns; the record is finished on acknowledgement. After a crash
the last records may be handled again. To make that harmless, a header of each row's record names the last included
event.

    totals = app.table("totals", key=str, value=int, format="json")

    @app.subscribe(sales)
    async def add(sale: Sale, record: ConsumerRecord[str, Sale]) -> None:
        if not totals.includes(sale.shop, record):
            await totals.put(sale.shop, totals.get(sale.shop, 0) + sale.amount)

A pure rule may keep the offset in the value instead (`last_offset`), and return its input for an included event. Both
need a row's events in order, as records of one key are; a handler that keeps rows by another key is subscribed with
`ordering="partition"`.

Handlers of a table lock rows (`row_locks`), each call from its first line until its rows are sent: the rows of its
record's key or, with `ordering="partition"` and in batches, all of the partition. So the log has the order of the
decisions, and no call sees another's unfinished changes. A handler must not wait for another handler of the same rows.
Outside of handlers nothing is locked.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar

from busway.admin.new_topic import NewTopic
from busway.app.calling.depends import current
from busway.app.extending.extension import Call, Extension
from busway.app.handling.handler_output import HandlerOutput, current_output
from busway.app.model.topic import BadDeclaration, ConsumerRecord, Route, Topic
from busway.app.service import RunningService
from busway.app.tables.changes import Change, change_outside
from busway.app.tables.copies import Copies
from busway.app.tables.row_locks import WHOLE, RowLocks
from busway.app.tables.rows import Attempt, HeldRows, NotHere, RowOrigin, names
from busway.errors import NotRunning
from busway.types import ProducerRecord, RecordMetadata, TopicPartition
from busway_protocol.partitioning import partition_for_key

if TYPE_CHECKING:
    from busway.producer.producer import KeyValueHeaders

logger: logging.Logger = logging.getLogger("busway.app")

K = TypeVar("K")
V = TypeVar("V")
COMPACT: Final = {"cleanup.policy": "compact"}


class Table(HeldRows[K, V], Extension):
    """Rows by key of the partitions assigned to this instance; made by `App.table`.

    Values are replaced, never changed in place: after a failure the old value is restored. Handlers that change rows of
    other keys than their record's need `ordering="partition"` or batches; locks: see the module.

    Raises:
        BadDeclaration: the key type is not hashable.
    """

    def __init__(
        self,
        topic: Topic[K, V],
        *,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        sources: Sequence[Topic[Any, Any]] = (),
    ) -> None:
        super().__init__()
        hashable(topic)
        self.topic = topic
        self._wanted = NewTopic(topic.name, partitions or -1, configs={**COMPACT, **(configs or {})})
        self._given = frozenset(source.name for source in sources)
        self._sources: frozenset[str] = frozenset()
        self._copies = Copies(self, topic)
        self._partitions = 0
        self._changed_by: dict[str, set[str]] = {}
        self._attempt: ContextVar[Attempt[K, V] | None] = ContextVar(f"attempt on {topic.name}", default=None)
        self._row_locks: defaultdict[int, RowLocks] = defaultdict(RowLocks)
        self._lanes = 0
        self._guarantees: frozenset[str] = frozenset()

    @property
    def held(self) -> frozenset[int]:
        return frozenset(self._held)

    def covers(self, key: K) -> bool:
        """Return whether the key's default partition is assigned and restored.

        A row that is missing then exists nowhere, unless it was put with an explicit `partition`. False too while the
        app does not run or has no partitions yet.

        Raises:
            Unencodable: the key is of another type than the table's.
        """
        return bool(self._held) and self._partition_for(key) in self._held

    # For handlers

    def includes(self, key: K, record: ConsumerRecord[Any, Any]) -> bool:
        """Return whether the row already includes a change made for `record` or a later one of its partition.

        Rows put by the call itself count only after a flush: the records of a batch may change a row one after another.
        Deleted rows include nothing, nor do rows from before the record's topic was recreated.

        Raises:
            BadDeclaration: the handler may get the row's events in another order, or is not their only handler, so the
                answer would be wrong.
        """
        attempt = self._attempt.get()
        if attempt is None or attempt.ended:
            _, origin = self._row_in(record.partition, key)
        else:
            attempt.asked = True
            self._check_half_batch(attempt)
            self._check_telling(attempt, key)
            _, origin = attempt.before[key] if key in attempt.before else self._row_in(record.partition, key)
        return origin is not None and origin.included.get(record.topic, -1) >= record.offset

    def _check_half_batch(self, attempt: Attempt[K, V]) -> None:
        if attempt.batch and attempt.asked and attempt.flushed:
            raise BadDeclaration(
                f"table {self.topic.name}: half a batch that is flushed would count as the whole when it is tried again; "
                f"subscribe {attempt.route} without batch, do not flush, or keep the offset in the value instead of asking includes"
            )

    def _check_telling(self, attempt: Attempt[K, V], key: K) -> None:
        """Refuse `includes` where the header cannot answer it."""
        if not attempt.in_order and key != attempt.key:
            raise BadDeclaration(
                f"table {self.topic.name}: the row {key!r} is changed by records of other keys, such as {attempt.key!r}, which may "
                'come out of order when one is tried again; give app.subscribe(…, ordering="partition")'
            )
        if others := self._changed_by.get(attempt.topic, set()) - {attempt.route}:
            raise BadDeclaration(
                f"table {self.topic.name}: {names(others)} changes it for records of {attempt.topic} too, independently, so the order of "
                f"changes of a row by {attempt.route} is undefined; make one handler of them, or give each a table"
            )

    async def put(self, key: K, value: V, *, partition: int | None = None) -> None:
        """Set a row.

        In a handler it is written when that returns, and undone if it fails; elsewhere, wait for the acknowledgement.

        Args:
            partition: of a new row, to keep it in its event's partition; by default chosen by the key. An existing row
                stays where it is.

        Raises:
            NotHere: the row is of another partition than the handled record; outside of handlers, of one not assigned
                to this instance.
            Unencodable: the key or, when it is written, the value is of another type.
            BuswayError: outside of handlers, it was not acknowledged; the row is as it was.
        """
        if value is None:
            raise TypeError(f"table {self.topic.name}: None is no value; use delete({key!r})")
        await self._change(key, value, partition)

    async def flush(self) -> None:
        """In a handler, write its changes so far and wait for the acknowledgement.

        They stay if the handler fails later, and its next attempt finds them: for a second write that must never be
        ahead of the first. In an exactly_once handler all writes are one transaction, and this fixes the place of those
        so far: a row that is put again is written again, after them.

        Raises:
            BadDeclaration: the handler takes batches and calls `includes`, for which rows carry the last record of the
                batch.
            BuswayError: it was not acknowledged, and is undone when the handler fails.
        """
        attempt = self._attempt.get()
        if attempt is None or attempt.ended:
            return
        if (output := current_output.get()) is not None:
            for row in self._rows_of(attempt):
                output.keep(row)
            return
        attempt.flushed = True
        self._check_half_batch(attempt)
        if futures := await self._write(attempt, attempt.put, linger=False):
            await asyncio.wait(futures)  # unlike gather, it cancels nothing: finishing the record depends on them
        for future in futures:
            future.result()
        attempt.keep()

    async def delete(self, key: K) -> None:
        """Remove a row with a tombstone; otherwise as `put`."""
        await self._change(key, None)

    async def _change(self, key: K, value: V | None, partition: int | None = None) -> None:
        attempt = self._attempt.get()
        if attempt is not None and not attempt.ended:
            origin = self._origin_in(attempt, key, partition)
            if not attempt.put:
                self._changed_by.setdefault(attempt.topic, set()).add(attempt.route)
            attempt.change(self, key, value, origin)
            return
        origin = self.home(key) or RowOrigin(
            partition=self._partition_for(key) if partition is None else partition, included={}
        )
        if origin.partition not in self._held:
            raise NotHere(
                f"table {self.topic.name}: {key!r} belongs to partition {origin.partition}, which this instance does not have "
                f"(it has {names(map(str, self._held)) or 'none'}); send an event to {names(self._sources)} instead"
            )
        before, was = self._row_in(origin.partition, key)
        if self._guarantees == {"exactly_once"}:
            copy, opened = (
                self._copies.of(origin.partition),
                self.topic.app.open_output(self._sources, origin.partition),
            )
            await change_outside(self, self.topic, opened, key, value, origin=origin, copy=copy)
            return
        copy = self._copies.of(origin.partition)
        with copy.changing():
            self._set_row(key, value, origin)
            try:
                sent = await self.topic.send(value, key, headers=[origin.header()], partition=origin.partition)
                copy.written(sent.offset)
            except BaseException:
                copy.known = None
                self._take_back(key, value, before, was or origin)
                raise

    def _origin_in(self, attempt: Attempt[K, V], key: K, partition: int | None) -> RowOrigin | None:
        if attempt.topic not in self._sources:
            raise NotHere(
                f"table {self.topic.name} goes with {names(self._sources)}; a handler of {attempt.topic} cannot change it"
            )
        if len(self._guarantees) > 1 and current_output.get() is not None:
            raise BadDeclaration(
                f"table {self.topic.name}: {attempt.route} is exactly_once, and not all handlers of {names(self._sources)} are; give "
                "app.table(…, sources=[…]) topics whose handlers all are, or make none of them so"
            )
        if attempt.partition not in self._held:
            raise NotHere(f"table {self.topic.name}: partition {attempt.partition} has gone to another instance")
        origin = self.home(key)
        if origin is not None:
            partition = origin.partition
        elif partition is None:
            # The record's own key stays in the record's partition, however its sender chose that.
            partition = attempt.partition if key == attempt.key else self._partition_for(key)
        if partition != attempt.partition:
            raise NotHere(
                f"table {self.topic.name}: {key!r} belongs to partition {partition}, and the record that is handled is of "
                f"{attempt.topic}-{attempt.partition}, which another instance may have; "
                "send what happened to a topic with that key, and change the row in its handler. Where records of that key itself come in "
                "several partitions, two producers choose them differently (librdkafka's default is no murmur2): give all the same partitioner"
            )
        return origin

    def _partition_for(self, key: K) -> int:
        if not self._partitions:
            raise NotRunning(f"table {self.topic.name}: app {self.topic.app.name} is not running")
        return partition_for_key(self.topic.app.serdes.encode(self.topic, "key", key) or b"", self._partitions)

    async def _write(
        self, attempt: Attempt[K, V], keys: Iterable[K], *, linger: bool = True
    ) -> "list[asyncio.Future[RecordMetadata]]":
        copy = self._copies.of(attempt.partition)
        try:
            futures = await self.topic.app.send_encoded(
                self.topic, self._encoded(attempt, list(keys)), partition=attempt.partition, linger=linger
            )
        except BaseException:
            copy.known = None
            raise
        copy.sent(futures)
        return futures

    def _encoded(self, attempt: Attempt[K, V], keys: Sequence[K]) -> "Iterator[KeyValueHeaders]":
        """Encode each row at its turn: others may have changed it since, and the last write is restored."""
        serdes = self.topic.app.serdes
        encode_key, encode_value = serdes.encoder(self.topic, "key"), serdes.encoder(self.topic, "value")
        latest: RowOrigin | None = None
        headers: tuple[tuple[str, bytes | None], ...] = ()
        for key in keys:
            value, origin = self._row_in(attempt.partition, key)
            encoded = encode_key(key), None if value is None else encode_value(value)
            if origin is None:
                origin = attempt.put[key][1]
            if origin is not latest:
                latest, headers = origin, (origin.header(),)
            attempt.written.append(key)
            yield *encoded, headers

    def _rows_of(self, attempt: Attempt[K, V]) -> Iterator[ProducerRecord]:
        keys = list(attempt.unsent)
        attempt.unsent.clear()
        for key, value, headers in self._encoded(attempt, keys):
            yield ProducerRecord(self.topic.name, attempt.partition, key, value, headers, None)

    # Extension

    async def starting(self, app: RunningService) -> None:
        from busway.app.tables.copartitioning import make_beside

        self._sources = sources_of(self, app.routes)
        if not self._sources:
            raise BadDeclaration(
                f"table {self.topic.name} goes with the topics that handlers read, and app {app.name} has no handlers; "
                "app.global_table(…) is for that"
            )
        self._guarantees = frozenset(
            route.guarantee for route in app.routes if {topic.name for topic in route.topics} & self._sources
        )
        app.shares_together |= len(self._sources) > 1
        self._partitions = await make_beside(app, self._wanted, self._sources)
        self._lanes = sum(len({topic.name for topic in route.topics} & self._sources) for route in app.routes)

    async def stopped(self, app: RunningService) -> None:
        self._held.clear()
        self._copies.clear()
        self._changed_by.clear()
        self._row_locks.clear()
        self._partitions = 0
        self._forget()

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Restore the rows of these partitions; raises as `Copies.read_back`.

        Revoked partitions that return are resumed; others have new owners and are dropped.
        """
        new = {partition.partition for partition in partitions if partition.topic in self._sources} - self._held
        self._copies.keep_only(self._held | new)
        if not new:
            return {}
        read = await self._copies.read_back(new)
        self._held |= new
        held = sorted(self._held)
        logger.info("table %s: %d rows, %d records read, partitions %s", self.topic.name, len(self), read, held)
        return {}

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        gone = {partition.partition for partition in partitions if partition.topic in self._sources} & self._held
        self._held -= gone
        for partition in gone:
            self._row_locks.pop(partition, None)
        self._copies.give_up(gone)

    def around(self, route: Route, call: Call) -> Call:
        attempted = self._attempted(route, call)
        if self._lanes == 1 and route.ordering != "none":
            return attempted  # its own order already serialises calls for the same rows
        whole = _in_order(route)

        async def in_turn(argument: Any) -> Any:
            record = argument[-1] if isinstance(argument, list) else argument
            if record.topic not in self._sources:
                return await attempted(argument)
            # A record without a key has no row by its key, and locks nothing.
            key = WHOLE if whole else object() if (own := current.get().key) is None else own
            turn = self._row_locks[record.partition].turn(key)
            if (output := current_output.get()) is not None:
                # Held until its rows, and those of other tables, are queued for the commit.
                if output.turns is None:
                    output.turns = AsyncExitStack()
                await output.turns.enter_async_context(turn)
                return await attempted(argument)
            async with turn:
                return await attempted(argument)

        return in_turn

    def _attempted(self, route: Route, call: Call) -> Call:
        async def attempted(argument: Any) -> Any:
            record: ConsumerRecord[Any, Any] = argument[-1] if isinstance(argument, list) else argument
            attempt: Attempt[K, V] = Attempt(
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                key=record.key,
                route=route.name,
                batch=route.batch is not None,
                in_order=_in_order(route),
            )
            token = self._attempt.set(attempt)
            copy = self._copies.of(record.partition)
            copy.open += 1
            if (output := current_output.get()) is not None:
                return await self._kept(output, Change(self, attempt, copy, self._rows_of), token, call(argument))
            try:
                result = await call(argument)
                attempt.ended = True
                await self._write(attempt, attempt.put)
            except BaseException:
                attempt.ended = True
                self._undo(attempt)
                if attempt.written:  # restored; all before the first one that cannot be written
                    await self._write(attempt, attempt.written)
                raise
            finally:
                self._attempt.reset(token)
                copy.open -= 1
            return result

        return attempted

    async def _kept(self, output: HandlerOutput, change: Change, token: Any, call: Awaitable[Any]) -> Any:
        try:
            result = await call
        except BaseException:
            change.undo()
            raise
        finally:
            self._attempt.reset(token)
        output.change(change)
        return result


def _in_order(route: Route) -> bool:
    return route.ordering == "partition" or route.batch is not None


def hashable(topic: Topic[Any, Any]) -> None:
    if getattr(topic.key, "__hash__", None) is None:
        raise BadDeclaration(
            f"table {topic.name}: keys of type {topic.key.__name__} cannot be looked up; make it @dataclass(frozen=True)"
        )


def sources_of(table: Table[Any, Any], routes: Iterable[Route]) -> frozenset[str]:
    """Return the topics that a table goes with: the given ones, else all that handlers read."""
    return table._given or frozenset(topic.name for route in routes for topic in route.topics)
