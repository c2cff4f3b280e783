"""Which transactional records compaction drops, and which ends of transactions (KIP-98, KIP-534).

What lives here: the transactions that are under way where a cleaning has come to, batch by batch. What does not: records and their keys
(`compaction`), the indexes that aborted transactions are in (`aborted`).

Records of an aborted transaction go at once. Its marker stays until no record of it is left, and then, as a tombstone does, until
the delete horizon: a reader who is in the middle of the transaction has to meet its end. A commit marker likewise.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from busway_bus.log.aborted import AbortedTransaction
from busway_protocol.records.batch import BatchHeader
from busway_protocol.records.control import ControlType, control_type
from busway_protocol.records.record import Record


class CleanedTransactions:
    """What a cleaning knows at the batch that it has come to; only stable batches come, so every transaction has ended."""

    __slots__ = ("_aborted", "_committed", "_pending")

    def __init__(self) -> None:
        self._pending: list[tuple[int, AbortedTransaction]] = []
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """By producer, with whether any record of it was met."""
        self._committed: set[int] = set()

    def add(self, aborted: Iterable[AbortedTransaction]) -> None:
        """More transactions that were aborted; those that are known already may be among them."""
        for entry in aborted:
            heappush(self._pending, (entry.first_offset, entry))

    def records(self, header: BatchHeader) -> bool:
        """Go over a batch of records; answers whether they were rolled back."""
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
        """Go over a control batch; answers whether it ends nothing that is left, and the entry that its index still needs."""
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
