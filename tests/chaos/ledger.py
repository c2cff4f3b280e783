"""What clients were promised, and what a reader of committed records may therefore find.

Here: outcomes of writes, and their comparison with what was read.
Not here: the clients (`sdk_clients`, `librdkafka_clients`), the replicas' files (`replicas`).
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

Place = tuple[str, int, int]
"""Topic, partition, offset."""
SHOWN: Final = 5
"""Examples of an anomaly in a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomalies:
    """What must not be, each a list of descriptions.

    Attributes:
        lost: acknowledged, or committed, and not read.
        duplicated: read at more than one place.
        aborted_visible: of an aborted transaction, and read.
        torn: of a transaction of unknown outcome, read in part.
        reordered: a writer's records in another order than it wrote them.
        unwritten: read, and never sent.
        changed: read at a place where the last reader found something else, or nothing.
    """

    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    aborted_visible: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    unwritten: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        return {name: len(getattr(self, name)) for name in self.__slots__}


class Ledger:
    """Outcomes of all writes; called from the event loop and from threads.

    A value is `writer:number`, with numbers in the order of writing. It is written once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tried: set[str] = set()
        self._acknowledged: set[str] = set()
        self._aborted: set[str] = set()
        self._unknown: list[list[str]] = []
        self._seen: dict[Place, str] = {}
        self._conflicts: list[str] = []
        self.counts: Counter[str] = Counter()
        """Acknowledged operations, committed and aborted transactions, by name."""

    def tried(self, values: Iterable[str]) -> None:
        """Note values before they are sent."""
        with self._lock:
            self._tried.update(values)

    def acknowledged(self, writer: str, value: str) -> None:
        """Note a record outside of transactions."""
        with self._lock:
            self._acknowledged.add(value)
            self.counts["acknowledged"] += 1
            self.counts[f"acknowledged by {writer}"] += 1

    def failed(self) -> None:
        """Count a record outside of transactions with an unknown outcome."""
        with self._lock:
            self.counts["unknown writes"] += 1

    def committed(self, writer: str, values: Collection[str]) -> None:
        with self._lock:
            self._acknowledged.update(values)
            self.counts["committed"] += 1
            self.counts[f"committed by {writer}"] += 1

    def aborted(self, writer: str, values: Collection[str]) -> None:
        with self._lock:
            self._aborted.update(values)
            self.counts["aborted"] += 1
            self.counts[f"aborted by {writer}"] += 1

    def unknown(self, values: list[str], why: str) -> None:
        """Note a transaction with an unknown outcome: all of it or nothing is read.

        Args:
            why: the call and its error, counted in the report.
        """
        with self._lock:
            self._unknown.append(values)
            self.counts["unknown transactions"] += 1
            self.counts[f"unknown: {why}"] += 1

    def seen(self, place: Place, value: str) -> None:
        """Note a record that a reader found while faults happened."""
        with self._lock:
            before = self._seen.setdefault(place, value)
            self.counts["read"] += 1
            if before != value:
                self._conflicts.append(f"{place} was {before}, then {value}")

    @property
    def progress(self) -> int:
        """Acknowledged records and committed transactions so far."""
        return self.counts["acknowledged"] + self.counts["committed"]

    def anomalies(self, final: Mapping[Place, str]) -> Anomalies:
        """Compare with what a reader found at last, in the order of offsets in each partition."""
        result = Anomalies(changed=list(self._conflicts))
        places: defaultdict[str, list[Place]] = defaultdict(list)
        latest: dict[tuple[str, str, int], int] = {}
        for place, value in sorted(final.items()):
            places[value].append(place)
            writer, _, number = value.rpartition(":")
            key = writer, place[0], place[1]
            if int(number) <= latest.get(key, -1) and len(places[value]) == 1:
                result.reordered.append(f"{value} at {place} after {latest[key]}")
            latest[key] = max(int(number), latest.get(key, -1))
        result.lost.extend(sorted(self._acknowledged - places.keys()))
        result.duplicated.extend(f"{value} at {where}" for value, where in places.items() if len(where) > 1)
        result.aborted_visible.extend(f"{value} at {places[value]}" for value in self._aborted & places.keys())
        result.unwritten.extend(sorted(places.keys() - self._tried))
        for values in self._unknown:
            visible = [value for value in values if value in places]
            if visible and len(visible) < len(values):
                result.torn.append(f"of {values} only {visible} are read")
        result.changed.extend(
            f"{value} was read at {place}, where the last reader found {final.get(place)}"
            for place, value in self._seen.items()
            if final.get(place) != value
        )
        return result
