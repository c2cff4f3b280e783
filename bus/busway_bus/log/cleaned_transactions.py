"""Transactional records and markers dropped by compaction (KIP-98, KIP-534).

Here: open transactions at a cleaning's position.
Not here: records and keys (`compaction`), indexes (`aborted`).

Records of an aborted transaction are dropped immediately. Its marker stays until they are gone, then until the delete
horizon, as a tombstone: a reader in between must see the end.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from busway_bus.log.aborted import AbortedTransaction
from busway_protocol.records.batch import BatchHeader
from busway_protocol.records.control import ControlType, control_type
from busway_protocol.records.record import Record


class CleanedTransactions:
    """Transactions at the current batch of a cleaning. All have ended."""

    __slots__ = ("_aborted", "_committed", "_pending")

    def __init__(self) -> None:
        self._pending: list[tuple[int, AbortedTransaction]] = []
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """Producer id → current aborted transaction, and whether a record was seen."""
        self._committed: set[int] = set()

    def add(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Add aborted transactions; duplicates are allowed."""
        for entry in aborted:
            heappush(self._pending, (entry.first_offset, entry))

    def records(self, header: BatchHeader) -> bool:
        self._begin(header.last_offset)
        if not header.is_transactional:
            return False
        known = self._aborted.get(header.producer_id)
        if known is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = known[0], True
        return True

    def control(self, header: BatchHeader, records: Sequence[Record]) -> tuple[bool, AbortedTransaction | None]:
        """Return whether a control batch's transaction has no records left.

        Also the index entry still needed.
        """
        self._begin(header.last_offset)
        if not records:
            return True, None
        kind = control_type(records[0].key)
        if kind == ControlType.ABORT:
            entry, met = self._aborted.pop(header.producer_id, (None, False))
            return not met, entry if met else None
        if kind == ControlType.COMMIT:
            ends = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not ends, None
        return False, None

    def _begin(self, offset: int) -> None:
        while self._pending and self._pending[0][0] <= offset:
            _, entry = heappop(self._pending)
            self._aborted.setdefault(entry.producer_id, (entry, False))
