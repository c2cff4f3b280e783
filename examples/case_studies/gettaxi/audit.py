"""What was acknowledged beside what the topics hold: lost, doubled, wrong.

Here: the comparison, pure; it goes on while the load does.
Not here: reading the topics (`auditing`), the same from all topics at the end (`stored`).
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from busway import ConsumerRecord
from gettaxi import fares, matching
from gettaxi.events import Command, Position, Ride, RiderPosition, Status
from gettaxi.surge import PLAIN_PERCENT

POSITIONS: Final = "gettaxi.positions"
RIDERS: Final = "gettaxi.riders"
COMMANDS: Final = "gettaxi.commands"
RIDES: Final = "gettaxi.rides"
Place = tuple[str, int]
"""Topic and partition."""
Event = Position | RiderPosition | Command


def identity(event: Event) -> tuple[Hashable, Hashable]:
    """Return the source of an event and its mark; a source sends each mark once, and marks of positions ascend."""
    if isinstance(event, Position):
        return event.driver_id, event.at
    if isinstance(event, RiderPosition):
        return event.ride_id, event.at
    return event.ride_id, (event.ask.value, event.driver_id)


@dataclass(slots=True)
class _Ledger:
    """A partition: records that only the sender knows, and those that only the reader knows."""

    next_offset: int = 0
    acknowledged: dict[int, Hashable] = field(default_factory=dict)
    read: dict[int, Hashable] = field(default_factory=dict)


class Audit:
    """Counts by comparison; each count is 0 where the bus and the service keep their promises.

    Attributes:
        checked: acknowledged records that are in their topic, at the offset of their acknowledgement.
        fares: rides whose fare was computed once more from the stored positions.
        lost_records: acknowledged, and something else or nothing at their offset.
        lost_requests: the service has committed them, and there is no ride.
        doubled_records: in a topic for the second time.
        doubled_rides: rows by which a driver has two rides at once.
        wrong_fares: not what the stored positions come to.
        statuses: of each ride, by its newest row.
        fares_cents: of the rides that have ended.
        surged: rides at more than the plain price.
        rows: of rides, how many were read.
    """

    def __init__(self) -> None:
        self.checked = self.fares = 0
        self.lost_records = self.doubled_records = self.doubled_rides = self.wrong_fares = 0
        self._lost_requests: set[str] = set()
        self._ledgers: defaultdict[Place, _Ledger] = defaultdict(_Ledger)
        self._marks: defaultdict[str, dict[Hashable, Any]] = defaultdict(dict)
        self._requests: dict[str, tuple[int, int]] = {}
        """Acknowledged requests without a ride so far: partition and offset."""
        self.statuses: dict[str, Status] = {}
        self.fares_cents = self.surged = self.rows = 0
        self._driving: dict[str, str] = {}
        self._driver_of: dict[str, str] = {}
        self._kept: defaultdict[str, list[fares.Stored]] = defaultdict(list)
        self._ended: dict[str, tuple[int, Ride]] = {}
        """Rides whose positions are not all read yet, with their partition."""

    @property
    def lost(self) -> int:
        return self.lost_records + len(self._lost_requests)

    @property
    def doubled(self) -> int:
        return self.doubled_records + self.doubled_rides

    @property
    def wrong(self) -> int:
        return self.wrong_fares

    @property
    def waiting(self) -> int:
        """Acknowledged records that are not read yet."""
        return sum(len(ledger.acknowledged) for ledger in self._ledgers.values())

    @property
    def unanswered(self) -> int:
        """Acknowledged requests without a ride so far."""
        return len(self._requests)

    def next_offset(self, topic: str, partition: int) -> int:
        """Return the offset up to which a partition was read."""
        return self._ledgers[topic, partition].next_offset

    # What devices know

    def acknowledged(self, event: Event, topic: str, partition: int, offset: int) -> None:
        """Note an event that the bus has acknowledged."""
        ledger, known = self._ledgers[topic, partition], identity(event)
        if isinstance(event, Command) and event.lat is not None and event.ride_id not in self.statuses:
            self._requests[event.ride_id] = partition, offset
        if offset >= ledger.next_offset:
            ledger.acknowledged[offset] = known
        elif ledger.read.pop(offset, None) == known:
            self.checked += 1
        else:
            self.lost_records += 1

    # What topics hold

    def record(self, record: ConsumerRecord[Any, Any]) -> None:
        """Take in the next committed record of a partition."""
        if record.topic == RIDES:
            self._ride(record)
        else:
            self._event(record)
        self.passed(record.topic, record.partition, record.offset + 1)

    def passed(self, topic: str, partition: int, offset: int) -> None:
        """Note that no committed record below `offset` is unread."""
        ledger = self._ledgers[topic, partition]
        if offset <= ledger.next_offset:
            return
        ledger.next_offset = offset
        # Ascending but for acknowledgements that overtake each other, so this looks at few.
        for missing in [known for known in ledger.acknowledged if known < offset]:
            del ledger.acknowledged[missing]
            self.lost_records += 1
        if topic == POSITIONS:
            self._check_fares()

    def _event(self, record: ConsumerRecord[Any, Any]) -> None:
        event = record.value
        if event is None:
            return
        ledger, known = self._ledgers[record.topic, record.partition], identity(event)
        if record.offset in ledger.acknowledged:
            right = ledger.acknowledged.pop(record.offset) == known
            self.checked += right
            self.lost_records += not right
        else:
            ledger.read[record.offset] = known
        source, mark = known
        marks = self._marks[record.topic]
        if isinstance(event, Command):
            self.doubled_records += mark in marks.setdefault(source, set())
            marks[source].add(mark)
            return
        before = marks.get(source)
        self.doubled_records += before is not None and event.at <= before
        marks[source] = max(event.at, before) if before is not None else event.at
        if isinstance(event, Position) and event.ride_id is not None:
            at = dt.datetime.fromtimestamp(record.timestamp_ms / 1000, dt.UTC)
            self._kept[event.ride_id].append(
                fares.Stored(offset=record.offset, key=record.key, recorded_at=at, position=event)
            )

    def _ride(self, record: ConsumerRecord[str, Ride]) -> None:
        ride = record.value
        if ride is None:
            return
        self.rows += 1
        self.surged += ride.ride_id not in self.statuses and ride.surge_percent > PLAIN_PERCENT
        self.statuses[ride.ride_id] = ride.status
        self._requests.pop(ride.ride_id, None)
        self._lost_requests.discard(ride.ride_id)
        before = self._driver_of.pop(ride.ride_id, None)
        if before is not None and self._driving.get(before) == ride.ride_id:
            del self._driving[before]
        if ride.status in matching.BUSY:
            assert ride.driver_id is not None
            self._driver_of[ride.ride_id] = ride.driver_id
            self.doubled_rides += self._driving.setdefault(ride.driver_id, ride.ride_id) != ride.ride_id
        elif ride.status is Status.ENDED:
            self._ended[ride.ride_id] = record.partition, ride
            self._check_fares()
        elif ride.status in {Status.CANCELLED, Status.EXPIRED}:
            self._kept.pop(ride.ride_id, None)

    def _check_fares(self) -> None:
        """Compute fares once more whose positions are read."""
        for ride_id, (partition, ride) in list(self._ended.items()):
            if self.next_offset(POSITIONS, partition) > ride.last_position_offset:
                del self._ended[ride_id]
                self.fares += 1
                self.fares_cents += ride.fare_cents or 0
                stored = self._kept.pop(ride_id, [])
                self.wrong_fares += fares.recompute(ride, stored) != (ride.meter, ride.fare_cents)

    # What the service has committed

    def handled(self, commands: Mapping[int, int]) -> None:
        """Look for requests that the service has handled without a ride.

        Args:
            commands: committed offsets by partition, read before `RIDES` was read to its end.
        """
        for ride_id, (partition, offset) in list(self._requests.items()):
            if offset < commands.get(partition, 0):
                self._lost_requests.add(ride_id)
