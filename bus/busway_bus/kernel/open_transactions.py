"""Keyed values of open transactions, until each commits or aborts (KIP-98).

Here: which of several writers of a key wins: as in Kafka, the last in the log, in whatever order their transactions
end.
Not here: committed values.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class OpenTransactions(Generic[K, V]):
    """Values by key and producer, added in log order.

    `counted`: called with values and 1 if added, -1 if removed.
    """

    __slots__ = ("_counted", "_keys", "_values")

    def __init__(self, counted: Callable[[Sequence[tuple[K, V]], int], None] = lambda values, by: None) -> None:
        self._counted = counted
        self._values: dict[K, dict[int, tuple[V, bool]]] = {}
        self._keys: dict[int, dict[K, None]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def all(self) -> Iterator[tuple[K, int, V, bool]]:
        """Yield key, producer, value, and whether it would win on commit.

        A key's values are in log order.
        """
        for key, values in self._values.items():
            for producer_id, (value, counts) in values.items():
                yield key, producer_id, value, counts

    def put(self, producer_id: int, key: K, value: V) -> None:
        """Add a value; it replaces the transaction's previous value of the key."""
        self._take(producer_id, key)
        self._values.setdefault(key, {})[producer_id] = value, True
        self._keys.setdefault(producer_id, {})[key] = None
        self._counted(((key, value),), 1)

    def overtake(self, key: K) -> None:
        """Note a later committed value; open values no longer win."""
        values = self._values.get(key)
        if values is not None:
            for producer_id, (value, _) in values.items():
                values[producer_id] = value, False

    def forget(self, key: K) -> None:
        """Remove all open values of a deleted key."""
        for producer_id in tuple(self._values.get(key, ())):
            keys = self._keys[producer_id]
            del keys[key]
            if not keys:
                del self._keys[producer_id]
            self._take(producer_id, key)

    def end(self, producer_id: int, *, committed: bool) -> list[tuple[K, V]]:
        """End a transaction; return the values that become effective."""
        in_force: list[tuple[K, V]] = []
        gone: list[tuple[K, V]] = []
        for key in self._keys.pop(producer_id, ()):
            values = self._values[key]
            value, counts = values[producer_id]
            if committed and counts:
                in_force.append((key, value))
            if len(values) == 1:
                del self._values[key]
            else:
                if committed and counts:
                    self._overtake_before(producer_id, values)
                del values[producer_id]
            gone.append((key, value))
        self._counted(gone, -1)
        return in_force

    @staticmethod
    def _overtake_before(producer_id: int, values: dict[int, tuple[V, bool]]) -> None:
        for earlier, (value, _) in values.items():
            if earlier == producer_id:
                return
            values[earlier] = value, False

    def _take(self, producer_id: int, key: K) -> None:
        values = self._values.get(key, {})
        entry = values.pop(producer_id, None)
        if entry is not None:
            self._counted(((key, entry[0]),), -1)
            if not values:
                del self._values[key]
