"""The service on a real bus and registry."""

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from movieflix import http, ratings, service
from movieflix.events import Action, Profile, Watched

from busway.testing import TestBus
from busway.web import serving

pytestmark = pytest.mark.slow


@pytest.fixture
async def bus() -> AsyncIterator[TestBus]:
    """The app on a fresh bus."""
    async with service.app.test() as running:
        yield running


def some(count: int) -> list[Watched]:
    """The first events of the extract."""
    return list(ratings.viewings(ratings.read(ratings.EXTRACT)))[:count]


async def test_profiles_come_of_events_and_survive_a_restart(bus: TestBus) -> None:
    """After a restart with empty memory the profiles are read back, and new events go on from them."""
    for event in some(90):
        await bus.send(service.watched, event, key=event.user_id)
    await bus.settle()
    before = dict(service.profiles)
    assert sum(profile.events for profile in before.values()) == 90
    await bus.restart()
    again = dataclasses.replace(some(1)[0], action=Action.PLAYING, position_s=60)
    await bus.send(service.watched, again, key=again.user_id)
    await bus.settle()
    after = service.profiles
    assert after.keys() == before.keys()
    assert after[again.user_id].events == before[again.user_id].events + 1
    assert after[again.user_id].resume[0].position_s == 60


async def test_impossible_events_are_put_aside_and_others_go_on(bus: TestBus) -> None:
    """A position outside the movie goes to the dead letters at the first attempt, with the reason."""
    good, bad = some(2)
    await bus.send(service.watched, dataclasses.replace(bad, position_s=-1), key=bad.user_id)
    await bus.send(service.watched, good, key=good.user_id)
    await bus.settle()
    (letter,) = await bus.dead_letters(service.watched)
    assert (letter.attempts, "position_s is -1" in letter.error) == (1, True)
    assert service.profiles[good.user_id].events == 1


async def test_a_viewer_goes_on_where_they_stopped_over_http(bus: TestBus) -> None:
    """What one device tells is what another one is told; what makes no sense is refused with the reason."""
    async with (
        serving(http.create(service.profiles, service.watched)) as url,
        httpx2.AsyncClient(base_url=url) as client,
    ):
        body = {"movie_id": 3, "position_s": 1200, "length_s": 6000, "device": "tv"}
        assert (await client.post("/users/5/watched", json=body)).status_code == 202
        await bus.settle()
        (resume,) = (await client.get("/users/5/resume")).json()
        assert (resume["movie_id"], resume["position_s"], resume["device"]) == (3, 1200, "tv")
        refused = await client.post("/users/5/watched", json={**body, "position_s": 7000})
        assert (refused.status_code, "position_s" in refused.json()["error"]) == (422, True)
        for nonsense in (b"{", b"[]", b'{"movie_id": 3}', b'{"movie_id": "x", "position_s": 1, "length_s": 2}'):
            assert (await client.post("/users/5/watched", content=nonsense)).status_code in {400, 422}
        assert (await client.get("/users/77")).status_code == 404
        assert "MovieFlix" in (await client.get("/")).text


async def test_the_page_hears_of_changes(bus: TestBus) -> None:
    """A change arrives as a server-sent event."""
    async with (
        serving(http.create(service.profiles, service.watched)) as url,
        httpx2.AsyncClient(base_url=url) as client,
        client.stream("GET", "/live") as live,
    ):
        lines = live.aiter_lines()
        assert await anext(lines) == "retry: 1000"
        await service.profiles.put(9, Profile(user_id=9, events=3))
        async for line in lines:
            if line.startswith("data: "):
                assert '"user_id":9' in line
                break


def test_bad_ratings_are_refused_by_line(tmp_path: Path) -> None:
    """A line that is no rating is named with its number."""
    file = tmp_path / "ratings.txt"
    file.write_text("1::2::3::4\n1::2::three::4\n")
    with pytest.raises(ratings.BadRatings, match="line 2"):
        list(ratings.read(file))


def test_each_rating_becomes_three_events_in_order() -> None:
    """The positions of one viewing grow, and the stars come last."""
    events = list(ratings.viewings(ratings.read(ratings.EXTRACT)))
    assert len(events) == 3 * len(list(ratings.read(ratings.EXTRACT)))
    for started, playing, stopped in zip(events[::3], events[1::3], events[2::3], strict=True):
        assert started.position_s <= playing.position_s <= stopped.position_s <= stopped.length_s
        assert stopped.rating is not None
