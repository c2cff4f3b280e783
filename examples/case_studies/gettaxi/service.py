"""The service: positions and commands in, rides and prices out. `busway run gettaxi.service:app` from the folder above runs it.

Here: topics, tables, the two handlers.
Not here: decisions (`city`, `matching`, `fares`, `surge`), the page (`http`).

Everything of a city has the city as its key, so it is in the partition of one number, which one instance has at a time. Its two
handlers are for whole partitions, so the tables let them take turns: what one has decided is on its way to the topic before the other
decides anything. So rows are in the topic in the order of the decisions, and whatever a crash leaves of them is a beginning of that order.

A ride is one row: its driver, its meter, its price and the last position in it. "Busy" is not stored anywhere, it is what the rows say. So
one write decides. The rows of a call and the place among its topic's records are committed together, or not at all, and by no instance that has
lost the city to another instance.
"""

import asyncio
import datetime as dt
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from busway import App, Batch, ConsumerRecord, Extension, Retry, RunningService, Table, TopicPartition
from busway.web import Feed, Web
from gettaxi import geo, http, matching
from gettaxi.city import City, drive
from gettaxi.events import Ask, Command, Position, Ride, RiderPosition, Surge
from gettaxi.surge import PLAIN_PERCENT

PARTITIONS: Final = 6
CHANGES_MOST: Final = 1_000_000
"""Changed rides that a city does not know yet; they are passed on before each decision, so this many never wait."""
LIVE_QUEUE: Final = 5000
"""Changes that wait for one page; then the oldest go, newer ones follow within a second."""
DAY_MS: Final = 24 * 60 * 60 * 1000
_REFUSES: Final = Retry(give_up_on=(matching.Impossible, geo.OffTheMap))

app = App(
    "gettaxi",
    bootstrap_servers=os.environ.get("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092"),
    schema_registry=os.environ.get("BUSWAY_SCHEMA_REGISTRY", "http://localhost:8081"),
    # With a name of its own, an instance that comes back takes its partitions over at once (static membership).
    consumer={"group_instance_id": os.environ.get("GETTAXI_INSTANCE")},
)

positions = app.topic("gettaxi.positions", key=str, value=Position, partitions=PARTITIONS)
# Kept for the store: no handler here decides anything by where a rider is.
rider_positions = app.topic("gettaxi.riders", key=str, value=RiderPosition, partitions=PARTITIONS)
commands = app.topic("gettaxi.commands", key=str, value=Command, partitions=PARTITIONS)
# Rows go with the partition of their city, whatever their own key is.
rides = app.table("gettaxi.rides", key=str, value=Ride, configs={"delete.retention.ms": str(DAY_MS)})
surges = app.table("gettaxi.surge", key=str, value=Surge)


class Cities(Extension):
    """The cities of the partitions that this instance has, each following the rides as the table has them.

    Args:
        rides: the table.
    """

    def __init__(self, rides: Table[str, Ride]) -> None:
        self._rides = rides
        self._by_partition: dict[int, dict[str, City]] = {}
        self._changes: asyncio.Queue[tuple[str, Ride | None]] | None = None
        self._city_of: dict[str, City] = {}
        self._stack = ExitStack()
        self._feeds: dict[str, Feed[http.Change]] = defaultdict(lambda: Feed(queue=LIVE_QUEUE))

    def __iter__(self) -> Iterator[City]:
        for cities in self._by_partition.values():
            yield from cities.values()

    def feed(self, name: str) -> "Feed[http.Change]":
        """What changes in a city, for the page."""
        return self._feeds[name]

    def of(self, name: str, partition: int) -> City:
        """A city, with every ride as the table has it now."""
        self.tell()
        cities = self._by_partition.setdefault(partition, {})
        city = cities.get(name)
        if city is None:
            known = [ride for ride in self._rides.values() if ride.city == name]
            city = cities[name] = City(name, known)
            self._city_of.update((ride.ride_id, city) for ride in known)
        return city

    def tell(self) -> None:
        """Tell the cities what has changed in the table, be it because a handler changed it or because one failed and it was undone."""
        changes = self._changes
        while changes is not None and not changes.empty():
            ride_id, ride = changes.get_nowait()
            if ride is None:
                if (city := self._city_of.pop(ride_id, None)) is not None:
                    city.follow(ride_id, None)
                continue
            home = self._rides.home(ride_id)
            city = self._by_partition.get(home.partition, {}).get(ride.city) if home is not None else None
            if city is not None:
                self._city_of[ride_id] = city
                city.follow(ride_id, ride)
                self._feeds[ride.city].put(ride)

    async def starting(self, app: RunningService) -> None:
        """Listen to the table."""
        self._changes = self._stack.enter_context(self._rides.changes(CHANGES_MOST))

    async def stopped(self, app: RunningService) -> None:
        """Forget everything; the table has it."""
        self._stack.close()
        self._changes = None
        self._by_partition.clear()
        self._city_of.clear()

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Rows were loaded; the cities that are here keep theirs."""
        self.tell()
        return {}

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Forget the cities of these partitions."""
        for partition in partitions:
            self._by_partition.pop(partition.partition, None)
        self.tell()


cities = app.extend(Cities(rides))
web = app.extend(
    Web(
        http.create(
            cities, rides, surges, http.Topics(positions=positions, rider_positions=rider_positions, commands=commands)
        )
    )
)


async def _keep(ride: Ride, partition: int) -> None:
    """Change a ride's row; the city knows it when this returns. Nothing waits in here, so no decision comes in between."""
    await rides.put(ride.ride_id, ride, partition=partition)
    cities.tell()


def _recorded_at(record: ConsumerRecord[Any, Any]) -> dt.datetime:
    return dt.datetime.fromtimestamp(record.timestamp_ms / 1000, dt.UTC)


@app.subscribe(commands, ordering="partition", retry=_REFUSES, guarantee="exactly_once")
async def dispatch(record: ConsumerRecord[str, Command]) -> None:
    """Begin a ride, or give one up; then match waiting riders."""
    command = matching.check_command(record.value, key=record.key, recorded_at=_recorded_at(record))
    ride = rides.get(command.ride_id)
    city = cities.of(command.city, record.partition)
    if command.ask is Ask.REQUESTED:
        if ride is not None:
            return  # sent twice
        after = city.request(command, record.offset, surge_percent=surge_percent(command))
    elif ride is None:
        raise matching.Impossible(f"ride_id is {command.ride_id!r}; there is no such ride in {command.city}")
    elif (after := matching.obey(ride, command, record.offset)) is ride:
        return
    await _keep(after, record.partition)
    for matched in city.assign():
        await _keep(matched, record.partition)


@app.subscribe(positions, batch=Batch(max_records=500, max_wait_s=0.02), retry=_REFUSES, guarantee="exactly_once")
async def follow(records: list[ConsumerRecord[str, Position]]) -> None:
    """Know where drivers are, run the meters, end rides; then match waiting riders and let time pass."""
    checked = [
        (matching.check_position(record.value, key=record.key, recorded_at=_recorded_at(record)), record.offset)
        for record in records
    ]
    partition = records[0].partition
    changed: dict[str, Ride] = {}
    seen: dict[str, City] = {}
    for position, offset in checked:
        city = seen.get(position.city)
        if city is None:
            city = seen[position.city] = cities.of(position.city, partition)
        city.see(position)
        if position.ride_id is not None:
            drive(changed, changed.get(position.ride_id) or rides.get(position.ride_id), position, offset)
        cities.feed(position.city).put(position)
    for ride in changed.values():
        await _keep(ride, partition)
    for city in seen.values():
        given_up = False
        for ride in city.give_up():
            await _keep(ride, partition)
            given_up = True
        if given_up:
            # A row that is put twice in a call is written once, where it was put first. Devices read row by row: so that no device takes a
            # driver before the row that gives the driver back, those rows have their place now.
            await rides.flush()
        for ride in city.assign():
            await _keep(ride, partition)
        await _pass_time(city, partition)


async def _pass_time(city: City, partition: int) -> None:
    """Publish the windows that are complete, and let go of what is not asked for any more."""
    passed = city.pass_time()
    if passed is None:
        return
    newest, closed = passed
    newest_windows = {window.cell: window for window in closed if window.end == newest}
    for cell, row in [(cell, row) for cell, row in surges.items() if row.city == city.name]:
        if row.window_end < newest and cell not in newest_windows:
            await surges.delete(cell)
            cities.feed(city.name).put(http.tile(cell, None))
    for cell, window in newest_windows.items():
        before = surges.get(cell)
        if before is None or before.window_end < window.end:
            row = Surge(
                cell=cell,
                city=city.name,
                window_end=window.end,
                demand=window.demand,
                supply=window.supply,
                percent=window.percent,
            )
            await surges.put(cell, row, partition=partition)
            cities.feed(city.name).put(http.tile(cell, row))
    for ride_id in city.to_forget():
        await rides.delete(ride_id)


def surge_percent(command: Command) -> int:
    """What a ride from there is multiplied by now."""
    assert command.lat is not None
    assert command.lng is not None
    row = surges.get(geo.surge_cell(command.lat, command.lng))
    return PLAIN_PERCENT if row is None else row.percent
