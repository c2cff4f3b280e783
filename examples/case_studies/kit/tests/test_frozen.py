"""Processes of the services that are frozen for longer than their session, and go on when others have their work: nothing of it is there twice."""

import asyncio
import datetime as dt
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from gettaxi import geo
from gettaxi import service as gettaxi
from gettaxi.events import Ask, Command, Phase, Position, Ride, Status
from kit.parts import Part, Parts
from mybank.events import Alert, Hour
from mybank.tests.captured import Captured
from mybank.topics import ALERTS
from mysocialmedia.events import Activity, Kind, Post
from tests.support.patience import patient
from tests.support.variants import with_variants

from busway import Admin, App

pytestmark = pytest.mark.slow
SECONDS = patient(40)
NOON = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
BUS = (
    "group.min.session.timeout.ms=100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=100",
)
BEFORE, MEANWHILE, AFTERWARDS = range(5), range(6, 12), range(12, 18)
THE_ONE = 5
"""The event in whose handling the process is stopped; those before and after it are of the same key."""


class Story(Protocol):
    """One case: an event after the other, and what must come of them."""

    input: str
    """The topic of the events: number n is at offset n."""

    async def begin(self) -> None:
        """What must be there before the first one."""

    async def send(self, number: int) -> None:
        """The next event, acknowledged."""

    async def handled(self) -> int:
        """How many are in what is committed, as readers see it."""

    async def check(self) -> None:
        """After the last event: each is there once, and each row comes out of the one before it."""


class MyBank:
    """Each transaction is alerted: an alert that is written late would be the second one."""

    name = "mybank"
    input = "mybank.public.transactions"

    def __init__(self, app: App, captured: Captured) -> None:
        self._app = app
        self._captured = captured
        self._alerts = app.topic(ALERTS, value=Alert, read_only=True)
        self._hours = app.topic("mybank.hours", value=Hour, read_only=True)

    async def begin(self) -> None:
        await self._captured.account("a")

    async def send(self, number: int) -> None:
        await self._captured.transaction(number, "5000.00", second=number)

    async def handled(self) -> int:
        return len({record.key async for record in self._app.read(self._alerts)})

    async def check(self) -> None:
        alerts = Counter([record.key async for record in self._app.read(self._alerts)])
        assert alerts == Counter(f"{number}:SINGLE" for number in range(AFTERWARDS.stop))
        kept = [len(record.value.outflows) async for record in self._app.read(self._hours) if record.value is not None]
        assert kept == sorted(set(kept))
        assert kept[-1] == AFTERWARDS.stop


class MySocialMedia:
    """Each activity is a like by another user: a late row of the post would say fewer than there were."""

    name = "mysocialmedia"
    input = "mysocialmedia.activity"

    def __init__(self, app: App, captured: Captured) -> None:
        self._app = app
        self._activities = app.topic(self.input, value=Activity, partitions=4)
        self._posts = app.topic("mysocialmedia.posts", value=Post, read_only=True)

    async def begin(self) -> None:
        """Nothing: the first event is the post."""

    async def send(self, number: int) -> None:
        kind = Kind.LIKED if number else Kind.POSTED
        now = dt.datetime.now(dt.UTC)
        activity = Activity(kind=kind, post_id="p", user_id=f"u{number}", at=now, text=None if number else "text")
        await self._activities.send(activity, key="p")

    async def _likes(self) -> list[int]:
        return [record.value.likes async for record in self._app.read(self._posts) if record.value is not None]

    async def handled(self) -> int:
        return max([likes + 1 for likes in await self._likes()], default=0)

    async def check(self) -> None:
        likes = await self._likes()
        assert likes == sorted(set(likes))
        assert likes[-1] == AFTERWARDS.stop - 1


class GetTaxi:
    """One ride, a position after the other: a late row would take legs from its meter."""

    name = "gettaxi"
    input = "gettaxi.positions"

    def __init__(self, app: App, captured: Captured) -> None:
        self._app = app
        self._centre = geo.CITIES["berlin"]
        self._positions = app.topic(self.input, value=Position, partitions=gettaxi.PARTITIONS)
        self._commands = app.topic("gettaxi.commands", value=Command, partitions=gettaxi.PARTITIONS)
        self._rides = app.topic("gettaxi.rides", value=Ride, read_only=True)

    async def begin(self) -> None:
        wanted = Command(ask=Ask.REQUESTED, ride_id="r", city="berlin", at=NOON, rider_id="u")
        wanted.lat, wanted.lng = self._centre.lat, self._centre.lng
        await self._commands.send(wanted, "berlin")

        async def waits() -> bool:
            return bool(await self._told())

        await until(waits, "the ride is asked for")

    async def send(self, number: int) -> None:
        last = number == AFTERWARDS.stop - 1
        phases = {0: Phase.FREE, 1: Phase.PICKED_UP}
        position = Position(
            driver_id="d",
            city="berlin",
            lat=self._centre.lat + number / 1000,
            lng=self._centre.lng,
            at=NOON + dt.timedelta(seconds=number),
            phase=Phase.DROPPED_OFF if last else phases.get(number, Phase.ON_RIDE),
            ride_id="r" if number else None,
        )
        await self._positions.send(position, "berlin")

    async def _told(self) -> list[Ride]:
        return [record.value async for record in self._app.read(self._rides) if record.value is not None]

    async def handled(self) -> int:
        return max([ride.meter.positions + 1 for ride in await self._told() if ride.driver_id is not None], default=0)

    async def check(self) -> None:
        first, *rides = await self._told()
        assert first.status is Status.WAITING
        meters = [ride.meter.positions for ride in rides]
        assert meters == sorted(set(meters))
        assert (rides[-1].status, meters[-1]) == (Status.ENDED, AFTERWARDS.stop - 1)


async def until(true: Any, what: str) -> None:
    """Return when it is so; others set no event of ours."""
    try:
        async with asyncio.timeout(SECONDS):
            while not await true():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"after {SECONDS} s it is not so that {what}") from None


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    """A bus and a registry as processes of their own."""
    async with Parts(tmp_path) as running:
        await running.start_bus(*BUS)
        yield running


async def start(parts: Parts, name: str, story: Any, **environment: str) -> Part:
    """A process of the service."""
    return await parts.start_app(
        name, "kit.tests.freezing:app", FREEZING_CASE=story.name, BUSWAY_HTTP_PORT="0", **environment
    )


async def until_shared(parts: Parts, group: str) -> None:
    """Return when two members have the partitions."""

    async def shared() -> bool:
        async with Admin(parts.bootstrap_servers) as admin:
            members = (await admin.describe_group(group)).members
        return len(members) == 2 and all(member.partitions for member in members)

    await until(shared, "both processes have partitions")


@pytest.mark.parametrize("step", with_variants(["returned", "before-commit"], gate=["before-commit"]))
@pytest.mark.parametrize("story", with_variants([MyBank, MySocialMedia, GetTaxi], gate=[MyBank]))
async def test_what_a_frozen_process_does_afterwards_is_not_there(parts: Parts, story: Any, step: str) -> None:
    """Stopped when its handler has returned, or when its work is in a transaction that is not committed yet, for longer than its session; a
    successor does that work and more, and then the process goes on. Each event is there once and no row goes back.

    Handled at least once, the row and the alert of the first process come on top of the successor's.
    """
    app = App("audit", parts.bootstrap_servers, parts.schema_registry)
    frozen = await start(parts, "frozen", story, FREEZING_AT=f"{story.input}@{THE_ONE}", FREEZING_STEP=step)
    await frozen.line()
    async with Captured(app) as captured:
        app_story = story(app, captured)
        async with app:
            await app_story.begin()
            for number in BEFORE:
                await app_story.send(number)
                await reached(app_story, number)
            await app_story.send(THE_ONE)
            assert await frozen.line() == "frozen"
            other = await start(parts, "other", story)
            await other.line()
            await reached(app_story, THE_ONE)
            for number in MEANWHILE:
                await app_story.send(number)
            await reached(app_story, MEANWHILE[-1])
            frozen.process.send_signal(signal.SIGCONT)
            await until_shared(parts, story.name)
            for number in AFTERWARDS:
                await app_story.send(number)
            await reached(app_story, AFTERWARDS[-1])
            await app_story.check()
    for part in (frozen, other):
        await part.end(signal.SIGTERM)
        assert (part.process.returncode, "Traceback" in part.tail()) == (0, False), part.tail()


async def reached(app_story: Story, number: int) -> None:
    """Return when that event is in what is committed."""

    async def there() -> bool:
        return await app_story.handled() > number

    await until(there, f"event {number} is handled")
