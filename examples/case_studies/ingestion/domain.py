"""The rules: what a position can be, what it changes, and how two layers make one history.

Here: pure functions.
Not here: topics, files, HTTP, time.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Final, Literal, TypeVar

from ingestion.events import LowFuel, Position, Truck

LOW_BELOW_PERCENT: Final = 15.0
FILLED_FROM_PERCENT: Final = 25.0
"""A sensor that trembles around the limit gives one alert and not twenty."""
FASTEST_KMH: Final = 200.0
RECENT_MOST: Final = 50_000
"""Positions of a partition that wait for the store; a thousand trucks' of nearly three hours on ten partitions."""
T = TypeVar("T")


class Impossible(ValueError):
    """A position that no truck can have; names the field."""


def check(position: Position) -> None:
    """Whether the position can be true.

    Raises:
        Impossible: it cannot.
    """
    if not position.truck_id:
        raise Impossible("truck_id is empty; name the truck")
    for name, value, least, most in (
        ("latitude", position.latitude, -90, 90),
        ("longitude", position.longitude, -180, 180),
        ("speed_kmh", position.speed_kmh, 0, FASTEST_KMH),
        ("fuel_percent", position.fuel_percent, 0, 100),
    ):
        if not least <= value <= most:  # not a number is outside, too
            raise Impossible(f"{name} is {value}; it is from {least:g} to {most:g}")


def apply(truck: Truck | None, position: Position, offset: int) -> tuple[Truck, LowFuel | None]:
    """The truck after the position at `offset`, and an alert if it has just run low; the same object if that position is in it already.

    Raises:
        Impossible: the position cannot be true.
    """
    if truck is not None and offset <= truck.last_offset:
        return truck, None
    check(position)
    was_low = truck is not None and truck.low
    low = position.fuel_percent < (FILLED_FROM_PERCENT if was_low else LOW_BELOW_PERCENT)
    after = Truck(
        truck_id=position.truck_id,
        newest=position,
        positions=(truck.positions if truck else 0) + 1,
        low=low,
        last_offset=offset,
    )
    if not low or was_low:
        return after, None
    return after, LowFuel(
        alert_id=f"{position.truck_id}@{offset}",
        truck_id=position.truck_id,
        fuel_percent=position.fuel_percent,
        latitude=position.latitude,
        longitude=position.longitude,
        at=position.at,
        offset=offset,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A position in a history, and which layer it comes from."""

    partition: int
    offset: int
    layer: Literal["store", "stream"]
    position: Position


class Recent:
    """The speed layer of one partition: the positions from the store's end on, in the order of their offsets.

    Args:
        start: the store's end when the partition came.
        most: positions at most; when more come, the oldest go, and `start` tells that they are missing.
    """

    def __init__(self, start: int, *, most: int = RECENT_MOST) -> None:
        self.start = start
        """From here on every position is here; before, only the store has them."""
        self._most = most
        self._entries: deque[tuple[int, Position]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, offset: int, position: Position) -> None:
        """The position at the next offset; what is known already, or in the store, changes nothing."""
        if offset < self.start or (self._entries and offset <= self._entries[-1][0]):
            return
        self._entries.append((offset, position))
        if len(self._entries) > self._most:
            self.start = self._entries.popleft()[0] + 1

    def stored(self, end: int) -> None:
        """The store reaches up to `end` now (exclusive)."""
        while self._entries and self._entries[0][0] < end:
            self._entries.popleft()
        self.start = max(self.start, end)

    def of(self, truck_id: str, start: int) -> list[tuple[int, Position]]:
        """One truck's positions from an offset on."""
        return [
            (offset, position)
            for offset, position in self._entries
            if offset >= start and position.truck_id == truck_id
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Offsets that neither layer has any more; only the topic does."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """Where the two layers meet, as it was at one moment: the store's ends, and the stream's entries from there.

    Attributes:
        ends: by partition, the offset up to which the store reaches (exclusive).
        entries: of the stream, at or above those ends.
        gaps: what the stream had to let go of before the store had it.
    """

    ends: Mapping[int, int]
    entries: tuple[Entry, ...]
    gaps: tuple[Gap, ...]


def meet(ends: Mapping[int, int], recent: Mapping[int, Recent], truck_id: str) -> Joint:
    """A truck's entries of the stream that the store does not have: from the store's end on, none twice and none left out."""
    entries = [
        Entry(partition=partition, offset=offset, layer="stream", position=position)
        for partition, tail in sorted(recent.items())
        for offset, position in tail.of(truck_id, ends.get(partition, 0))
    ]
    gaps = tuple(
        Gap(partition=partition, start=ends.get(partition, 0), end=tail.start)
        for partition, tail in sorted(recent.items())
        if tail.start > ends.get(partition, 0)
    )
    return Joint(ends=dict(ends), entries=tuple(entries), gaps=gaps)


def each_once(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries without those that come again later: a dead letter that was replayed is in the topic twice, and in the store."""
    newest = {astuple(entry.position): entry for entry in entries}
    return tuple(sorted(newest.values(), key=lambda entry: (entry.partition, entry.offset)))
