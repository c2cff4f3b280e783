"""What the clients under faults print, and what it says about them.

Here: parsing lines, results of a client in the window of a fault.
Not here: running the clients (`run`).

A client is a program with the arguments BOOTSTRAP TOPIC GROUP PARTITIONS PAUSE_MS REQUEST_TIMEOUT_MS PROTOCOL. It sends the
numbers from 0 on, one each PAUSE_MS, to the partitions in turn, and reads them as the only member of a group. A first line
on standard input ends sending; the program then prints `done`. A second one ends it. It prints a line for each event, with
the nanoseconds of the monotonic clock:

- `acknowledged NS VALUE`, `failed NS VALUE ERROR`
- `read NS VALUE PARTITION OFFSET`
- `assigned NS COUNT`, `revoked NS COUNT`, `lost NS COUNT`: calls of the rebalance listener
- `ended NS WHAT ERROR`: the producer or the consumer gave up
- `done NS`
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

PARTITIONS: Final = 3
REBALANCES: Final = frozenset({"assigned", "revoked", "lost"})


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    at_s: float
    words: tuple[str, ...]

    @property
    def partition(self) -> int:
        """Of a record."""
        return int(self.words[0]) % PARTITIONS


def parse(line: str) -> Event:
    kind, nanoseconds, *words = line.split()
    return Event(kind, int(nanoseconds) / 1e9, tuple(words))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A fault and the time until the next one, in seconds of the monotonic clock."""

    fault: str
    begin_s: float
    end_s: float

    def has(self, event: Event) -> bool:
        return self.begin_s <= event.at_s < self.end_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a client did in a window.

    Attributes:
        acknowledged: records.
        lost: acknowledged, and not in the log at the end.
        doubled: in the log more than once.
        read_again: deliveries of an offset after its first.
        unread: acknowledged, and never read.
        failed: records whose sending failed.
        rebalances: calls of the rebalance listener.
        ended: clients that gave up.
        write_stall_s, read_stall_s: longest time of a partition without an acknowledgement, and without a record.
    """

    client: str
    fault: str
    acknowledged: int
    lost: int
    doubled: int
    read_again: int
    unread: int
    failed: int
    rebalances: int
    ended: int
    write_stall_s: float
    read_stall_s: float

    @property
    def wrong(self) -> int:
        """What no client may do: lose, double or skip a record, give up."""
        return self.lost + self.doubled + self.unread + self.ended

    def cells(self) -> list[str]:
        return [
            self.client,
            self.fault,
            *map(str, (self.acknowledged, self.lost, self.doubled, self.read_again, self.unread, self.failed)),
            *map(str, (self.rebalances, self.ended)),
            f"{self.write_stall_s:.1f}",
            f"{self.read_stall_s:.1f}",
        ]


HEADER: Final = (
    *("client", "fault", "acknowledged", "lost", "doubled", "read again", "unread", "failed", "rebalances", "gave up"),
    *("write stall, s", "read stall, s"),
)


def rows(client: str, events: Sequence[Event], log: Sequence[str], windows: Iterable[Window]) -> list[Row]:
    """Return the results of a client by window; `log` has the values of its topic at the end."""
    stored = Counter(log)
    reads = [event for event in events if event.kind == "read"]
    seen = {event.words[0] for event in reads}
    again = _again(reads)
    acknowledged = [event for event in events if event.kind == "acknowledged"]
    first_of = {event.words[0]: event.at_s for event in reversed([*reads, *acknowledged])}
    result = []
    for window in windows:
        within = Counter(event.kind for event in events if window.has(event))
        values = [event.words[0] for event in acknowledged if window.has(event)]
        result.append(
            Row(
                client=client,
                fault=window.fault,
                acknowledged=len(values),
                lost=sum(value not in stored for value in values),
                doubled=sum(
                    count - 1
                    for value, count in stored.items()
                    if count > 1 and window.begin_s <= first_of.get(value, 0.0) < window.end_s
                ),
                read_again=sum(window.has(event) for event in again),
                unread=sum(value not in seen for value in values),
                failed=within["failed"],
                rebalances=sum(within[kind] for kind in REBALANCES),
                ended=within["ended"],
                write_stall_s=_stall(acknowledged, window),
                read_stall_s=_stall(reads, window),
            )
        )
    return result


def _again(reads: Iterable[Event]) -> list[Event]:
    seen: set[tuple[str, ...]] = set()
    again = []
    for event in reads:
        place = event.words[1:]
        if place in seen:
            again.append(event)
        seen.add(place)
    return again


def _stall(events: Iterable[Event], window: Window) -> float:
    """Return the longest time between two events of a partition, with the ends of the window as events."""
    times: dict[int, list[float]] = {}
    for event in events:
        if window.has(event):
            times.setdefault(event.partition, [window.begin_s]).append(event.at_s)
    gaps = [
        later - earlier
        for partition in range(PARTITIONS)
        for earlier, later in itertools.pairwise([*sorted(times.get(partition, [window.begin_s])), window.end_s])
    ]
    return max(gaps)
