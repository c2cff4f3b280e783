"""Partitions of a table in memory, and how far they match its topic.

Here: restoring rows; keeping revoked ones until their owner is known, and resuming from them.
Not here: changing them (`table`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from busway.app.model.topic import Topic
from busway.app.tables.rows import INCLUDED, RowOrigin, Rows
from busway.errors import BuswayError, ConnectionFailed, RequestTimedOut
from busway.net.clock import REAL_TIME
from busway.net.retry import Backoff
from busway.serde.errors import Undecodable
from busway.types import Record, RecordMetadata

if TYPE_CHECKING:
    from busway.consumer.snapshot import Snapshot

logger: logging.Logger = logging.getLogger("busway.app")

_KEPT_S: Final = 600.0
"""Seconds for which revoked rows can be resumed; later, tombstones written meanwhile may be compacted away."""
_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 10.0
"""Backoff while no broker answers: doubles from the first wait to the longest, without an end."""


class BadRow(BuswayError):
    """A record of the table's topic is no row of it; skipping it would lose state."""


@dataclass(slots=True, kw_only=True, eq=False)
class Copy:
    """State of a partition's rows in memory beside its topic.

    Attributes:
        known: the offset up to which they match; everything between the restored end and it was written by this
            instance. None after a failed write, which may or may not be in the topic.
        open: calls and writes in progress.
        left_s: when the partition was revoked; None while it is assigned.
    """

    known: int | None
    open: int = 0
    left_s: float | None = None

    @property
    def is_exact(self) -> bool:
        return self.known is not None and not self.open

    def written(self, offset: int) -> None:
        """Note an acknowledged row; `known` stays before a record of another writer."""
        if offset == self.known:
            self.known += 1

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    def left(self) -> Callable[[bool], None]:
        """Count rows that enter a transaction; return the callback for its outcome.

        `known` stays: this instance wrote everything between it and the end, which is read once more.
        """
        self.open += 1

        def settled(committed: bool) -> None:
            self.open -= 1
            if not committed:
                self.known = None

        return settled

    def sent(self, futures: "Collection[asyncio.Future[RecordMetadata]]") -> None:
        self.open += len(futures)
        for future in futures:
            future.add_done_callback(self._acknowledged)

    def _acknowledged(self, sent: "asyncio.Future[RecordMetadata]") -> None:
        self.open -= 1
        if sent.cancelled() or sent.exception() is not None:
            self.known = None
        else:
            self.written(sent.result().offset)


class Copies:
    """Rows of assigned partitions, and of revoked ones whose new owner is not known."""

    def __init__(self, rows: Rows[Any, Any], topic: Topic[Any, Any]) -> None:
        self._rows = rows
        self._topic = topic
        self._copies: dict[int, Copy] = {}

    def of(self, partition: int) -> Copy:
        return self._copies.get(partition) or Copy(known=None)

    def clear(self) -> None:
        self._copies.clear()

    def keep_only(self, partitions: Set[int]) -> None:
        self._forget(self._copies.keys() - partitions)

    def give_up(self, partitions: Set[int]) -> None:
        """Keep the rows of revoked partitions for readers until their new owner is known.

        Rows that may differ from the topic, by a pending or failed call or write, are dropped at once.
        """
        now_s = REAL_TIME.now_s()
        for partition in partitions:
            self._copies[partition].left_s = now_s
        self._forget({partition for partition in partitions if not self._copies[partition].is_exact})

    async def read_back(self, partitions: Set[int]) -> int:
        """Restore these partitions, waiting for brokers and registry; return the number of records read.

        Raises:
            BadRow: a record does not fit the table's types; names partition and offset.
        """
        backoff = Backoff(initial=_FIRST_WAIT_S, limit=_LONGEST_WAIT_S)
        while True:
            try:
                return await self._read_back(partitions)
            except (ConnectionFailed, RequestTimedOut) as problem:
                wait_s = backoff.next()
                logger.warning("table %s waits %.1f s to be read back: %s", self._topic.name, wait_s, problem)
            await REAL_TIME.sleep(wait_s)

    async def _read_back(self, partitions: Set[int]) -> int:
        from busway.consumer.snapshot import snapshot

        app, name = self._topic.app, self._topic.name
        read = 0
        async with snapshot(
            app.bootstrap_servers,
            name,
            partitions,
            client_id=app.name,
            isolation_level="read_committed",
            security=app.security,
        ) as contents:
            starts = self._starts(partitions, contents)
            self._forget(partitions - starts.keys())
            try:
                async for record in contents.records(starts):
                    read += 1
                    await self._take(record)
            except (Undecodable, ValueError) as problem:
                raise BadRow(
                    f"table {name} cannot be read back: {problem}; the rows before it are as they were, so mend or "
                    "delete that record, or read it with the type that wrote it"
                ) from None
        for partition in partitions:
            self._copies[partition] = Copy(known=contents.ends.get(partition))
        return read

    async def _take(self, record: Record) -> None:
        try:
            typed = await self._topic.app.serdes.decode(record)
        except Undecodable as problem:
            raise Undecodable(f"{record.topic}-{record.partition} offset {record.offset}: {problem}") from None
        assert typed.key is not None, "brokers refuse records without a key in a compacted topic"
        self._rows._set_row(
            typed.key, typed.value, RowOrigin.read(record.partition, typed.header(INCLUDED), record.timestamp_ms)
        )

    def _starts(self, partitions: Set[int], contents: "Snapshot") -> Mapping[int, int]:
        now_s = REAL_TIME.now_s()
        starts = {}
        for partition in partitions & self._copies.keys():
            copy = self._copies[partition]
            if copy.known is None or copy.left_s is None or now_s - copy.left_s > _KEPT_S:
                continue
            # Outside of the log it belongs to another one: the topic was created again, or records were deleted.
            if contents.begins[partition] <= copy.known <= contents.ends[partition]:
                starts[partition] = copy.known
        return starts

    def _forget(self, partitions: Set[int]) -> None:
        if partitions:
            self._rows._drop(partitions)
        for partition in partitions:
            self._copies.pop(partition, None)
