"""How the records of a source get to the topics, and its offsets behind or with them.

What lives here: what the loop of a source (`source_task`) asks of both ways, and which there is for a connector. What does not: the ways:
`acknowledged`, where offsets follow what is acknowledged; `transactional`, where both are in one transaction.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from busway import Producer
from busway_connect.connector import Offset, SourceRecord
from busway_connect.runtime.exactly_once import Mark, Written


class Delivery(Protocol):
    """One run's.

    Attributes:
        producer: of the records.
        dead_letters: the producer of the records that are passed over.
        written: what is in the topics already; None if that is not checked.
    """

    producer: Producer
    dead_letters: Producer
    written: Written | None

    def begin(self) -> None:
        """The source has handed records over."""

    def mark(self, record: SourceRecord) -> tuple[Mark, bytes] | None:
        """The next record's mark, and as a header; None without one."""

    async def sending(self, topic: str) -> None:
        """The next record is about to go to this topic."""

    async def took(self, record: SourceRecord, waiter: "asyncio.Future[Any] | None") -> None:
        """The record is on its way; or is not, without a waiter."""

    async def batch_over(self) -> None:
        """All that was handed over is on its way."""

    async def pause(self) -> None:
        """Bring to an end what can be."""

    async def end(self, *, failed: bool) -> None:
        """The run is over."""


class Reached:
    """How far each source partition is."""

    def __init__(self) -> None:
        self._offsets: dict[str, tuple[Mapping[str, Any], Offset]] = {}
        self._latest: Mapping[str, Any] | None = None
        self._key = ""

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def add(self, record: SourceRecord) -> None:
        """So far, with this record."""
        if record.partition != self._latest:
            self._latest = record.partition
            self._key = str(sorted(record.partition.items()))
        self._offsets[self._key] = (record.partition, record.offset)

    def join(self, later: "Reached") -> None:
        """So far, with what came later."""
        self._offsets.update(later._offsets)

    def take(self) -> list[tuple[Mapping[str, Any], Offset]]:
        """Take all offsets. The caller keeps them from now on."""
        offsets, self._offsets = list(self._offsets.values()), {}
        return offsets
