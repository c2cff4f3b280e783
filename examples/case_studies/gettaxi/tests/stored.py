"""What the topics say in the end, read from their beginning.

Here: reading them back and applying the rules by hand.
Not here: the same while the load goes on (`gettaxi.audit`).
"""

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass, field

from gettaxi import fares, matching
from gettaxi.events import Ride, Status
from gettaxi.generate import Devices


@dataclass(slots=True)
class Stored:
    """What the topics say in the end.

    Attributes:
        positions: of drivers, how many are stored.
        rider_positions: of riders.
        untold: rides that ended without a stored position of the rider before the meter started, or while it ran.
        rides: the newest record of each.
        twice: records of rides by which a driver had two at once.
        differ: rides whose fare is not what their stored positions come to.
    """

    positions: int = 0
    rider_positions: int = 0
    untold: int = 0
    rides: dict[str, Ride] = field(default_factory=dict)
    twice: int = 0
    differ: int = 0

    def count(self, status: Status) -> int:
        """Rides that ended so."""
        return sum(ride.status is status for ride in self.rides.values())


async def stored(devices: Devices) -> Stored:
    """Read the topics back and apply the rules by hand."""
    contents = Stored()
    driving: dict[str, str] = {}
    async for ride_record in devices.app.read(devices.ride_topic):
        ride = ride_record.value
        if ride is None:
            continue
        before = contents.rides.get(ride.ride_id)
        if before is not None and before.driver_id is not None and driving.get(before.driver_id) == ride.ride_id:
            del driving[before.driver_id]
        contents.rides[ride.ride_id] = ride
        if ride.status in matching.BUSY:
            assert ride.driver_id is not None
            contents.twice += driving.setdefault(ride.driver_id, ride.ride_id) != ride.ride_id
    kept: dict[str, list[fares.Stored]] = defaultdict(list)
    async for record in devices.app.read(devices.position_topic):
        contents.positions += 1
        if record.value is not None and record.value.ride_id in contents.rides:
            at = dt.datetime.fromtimestamp(record.timestamp_ms / 1000, dt.UTC)
            fare_position = fares.Stored(offset=record.offset, key=record.key, recorded_at=at, position=record.value)
            kept[record.value.ride_id].append(fare_position)
    rider_times: dict[str, list[dt.datetime]] = defaultdict(list)
    async for rider_record in devices.app.read(devices.rider_topic):
        contents.rider_positions += 1
        if rider_record.value is not None:
            rider_times[rider_record.value.ride_id].append(rider_record.value.at)
    for ride in contents.rides.values():
        if ride.status is Status.ENDED:
            began = ride.meter.started_at
            assert began is not None
            contents.untold += not (
                any(at < began for at in rider_times[ride.ride_id])
                and any(at >= began for at in rider_times[ride.ride_id])
            )
            contents.differ += fares.recompute(ride, kept[ride.ride_id]) != (ride.meter, ride.fare_cents)
    return contents
