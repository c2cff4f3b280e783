"""Delivery of a source's records to topics, with their offsets.

Here: the interface for the source's loop (`source_task`).
Not here: `acknowledged`, where offsets follow acknowledgements; `transactional`, with both in one transaction.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from busway import Producer
from busway_connect.connector import Offset, SourceRecord
from busway_connect.runtime.exactly_once import Mark, Written


class Delivery(Protocol):
    """Delivery of one run.

    Attributes:
        written: records that topics have already; None if not checked.
    """

    producer: Producer
    dead_letters: Producer
    written: Written | None

    def begin(self) -> None:
        """Start a batch: the source has returned records."""

    def mark(self, record: SourceRecord) -> tuple[Mark, bytes] | None:
        """Return the next record's mark, and its header; None without one."""

    async def sending(self, topic: str) -> None:
        """Prepare to send a record to this topic."""

    async def took(self, record: SourceRecord, waiter: "asyncio.Future[Any] | None") -> None:
        """Note that the record was sent; without a waiter, that it was not needed."""

    async def batch_over(self) -> None:
        """End a batch: all its records were sent."""

    async def pause(self) -> None:
        """Complete what can be completed."""

    async def end(self, *, failed: bool) -> None:
        """End the run."""


class Reached:
    """The last offset of each source partition."""

    def __init__(self) -> None:
        self._offsets: dict[str, tuple[Mapping[str, Any], Offset]] = {}
        self._latest: Mapping[str, Any] | None = None
        self._key = ""

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def add(self, record: SourceRecord) -> None:
        if record.partition != self._latest:
            self._latest = record.partition
            self._key = str(sorted(record.partition.items()))
        self._offsets[self._key] = (record.partition, record.offset)

    def join(self, later: "Reached") -> None:
        self._offsets.update(later._offsets)

    def take(self) -> list[tuple[Mapping[str, Any], Offset]]:
        """Return and clear all offsets; the caller must store them."""
        offsets, self._offsets = list(self._offsets.values()), {}
        return offsets
