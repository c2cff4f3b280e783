"""Killing parts in turn, and a registry that is killed while a service runs."""

import asyncio
import dataclasses
import datetime as dt
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kit.faults import KillsInTurn
from kit.parts import DemoFailed, Parts
from kit.summary import Summary
from movieflix.events import Action, Watched
from movieflix.service import PARTITIONS
from tests.support.patience import patient

from busway import Admin, App, Topic


class Fake:
    """A victim that comes back on request."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.back = asyncio.Event()
        self.broken = False
        self._log = log

    async def kill_and_restart(self) -> None:
        self._log.append(f"{self.name} killed")
        await self.back.wait()
        if self.broken:
            raise DemoFailed(f"{self.name} did not start again")
        self._log.append(f"{self.name} back")


async def test_each_is_killed_at_its_share_of_the_load_and_never_two_at_once() -> None:
    """The load goes on while a part is away; it is held up where the next turn comes before that, and at the end."""
    log: list[str] = []
    first, two = Fake("one", log), Fake("two", log)
    kills = KillsInTurn([first, two])

    async def send(event: int) -> "asyncio.Future[Any]":
        log.append(f"event {event}")
        return asyncio.get_running_loop().create_future()

    async def load() -> None:
        async with kills:
            send_and_kill = kills.during(send, 6)
            for event in range(6):
                await send_and_kill(event)
                await asyncio.sleep(0)
            log.append("all sent")

    loading = asyncio.ensure_future(load())
    for victim in (first, two):
        await asyncio.wait([loading], timeout=0.01)
        assert not loading.done()
        victim.back.set()
    await loading
    assert log == [
        "event 0", "event 1", "event 2", "one killed", "event 3", "one back", "event 4", "two killed", "event 5", "all sent",
        "two back",
    ]  # fmt: skip
    summary = Summary()
    kills.tell(summary)
    assert (summary.lines, summary.wrong) == ([("killed under load", "one, two")], [])


async def test_a_part_that_does_not_come_back_ends_the_load() -> None:
    """At the next turn; and a summary of a load that ended before every turn fails."""
    first, two = Fake("one", []), Fake("two", [])
    kills, summary = KillsInTurn([first, two]), Summary()
    first.broken = True
    first.back.set()

    async def load() -> None:
        async with kills:
            for share in (0.5, 0.9):
                await kills.passed(share)

    with pytest.raises(DemoFailed, match="one did not start again"):
        await load()
    kills.tell(summary)
    assert summary.exit_code == 1


async def test_nobody_is_disturbed_without_victims() -> None:
    """As in a demo with a viewer; the summary says nothing of it."""
    summary = Summary()
    async with KillsInTurn([]) as kills:
        await kills.passed(1.0)
    kills.tell(summary)
    assert summary.lines == []


@pytest.mark.hostile
@pytest.mark.slow
async def test_the_registry_is_killed_while_a_service_runs(tmp_path: Path) -> None:
    """What the service knows it goes on with; a new version of an event waits until the registry is back, and is no dead letter. A
    service that is started meanwhile says in one line what it needs."""
    newer = dataclasses.make_dataclass("Watched", [("episode", int, 0)], bases=(Watched,), kw_only=True)
    async with Parts(tmp_path) as parts, asyncio.timeout(patient(60)):
        await parts.start_bus()
        service = await parts.start_app("service", "movieflix.service:app", BUSWAY_HTTP_PORT="0")
        url = (await service.line()).removeprefix("movieflix ")
        app, next_version = (App(name, parts.bootstrap_servers, parts.schema_registry) for name in ("known", "new"))
        known = app.topic("movieflix.watched", key=int, value=Watched, partitions=PARTITIONS)
        new: Topic[int, Any] = next_version.topic("movieflix.watched", key=int, value=newer, partitions=PARTITIONS)
        async with app, next_version, httpx2.AsyncClient(base_url=url, timeout=patient(20)) as client:
            await parts.registry.kill()
            await new.send(_viewing(newer, 1), key=1, partition=0)
            await known.send(_viewing(Watched, 2), key=2, partition=0)  # behind the one that waits
            await known.send(_viewing(Watched, 3), key=3, partition=1)
            await _viewers(client, {3})
            late = await parts.start_app("late", "movieflix.service:app", BUSWAY_HTTP_PORT="0")
            assert await late.process.wait() == 1
            assert late.tail().startswith(f"busway: the schema registry at {parts.schema_registry} does not answer"), (
                late.tail()
            )
            await parts.registry.start_again()
            await parts.registry.line()
            await _viewers(client, {1, 2, 3})
            async with Admin(parts.bootstrap_servers) as admin:
                assert not [name for name in await admin.list_topics() if name.endswith(".dlt")]


def _viewing(kind: type[Watched], user_id: int) -> Watched:
    at = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
    return kind(
        user_id=user_id, movie_id=1, action=Action.PLAYING, position_s=60, length_s=600, played_s=60, device="tv", at=at
    )


async def _viewers(client: httpx2.AsyncClient, expected: set[int]) -> None:
    """Returns when the service knows of these, and fails when it knows of others."""
    while (users := {profile["user_id"] for profile in (await client.get("/profiles")).json()}) != expected:
        assert users < expected
        await asyncio.sleep(0.05)
