"""The service on a real bus and registry."""

import asyncio
import dataclasses
import datetime as dt
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from movieflix import domain, model, ratings, recommend, service, taste
from movieflix.events import Action, Complete, ModelPart, MovieFactors, Profile, Taste, Watched
from tests.support.programs import spawn_async
from tests.support.variants import with_variants

from busway import App, Consumer, TopicPartition
from busway.testing import TestBus, crash_points
from busway.web import serving
from busway_protocol.partitioning import partition_for_key

pytestmark = pytest.mark.slow
AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
async def bus() -> AsyncIterator[TestBus]:
    """The app on a fresh bus."""
    async with service.app.test() as running:
        yield running


def make_events(count: int) -> list[Watched]:
    """The first events of the extract."""
    return list(ratings.viewings(ratings.read(ratings.EXTRACT)))[:count]


async def test_profiles_come_of_events_and_survive_a_restart(bus: TestBus) -> None:
    """After a restart with empty memory the profiles are read back, and new events go on from them."""
    for event in make_events(90):
        await bus.send(service.watched, event, key=event.user_id)
    await bus.settle()
    before = dict(service.profiles)
    assert sum(profile.events for profile in before.values()) == 90
    await bus.restart()
    again = dataclasses.replace(make_events(1)[0], action=Action.PLAYING, position_s=60)
    await bus.send(service.watched, again, key=again.user_id)
    await bus.settle()
    after = service.profiles
    assert after.keys() == before.keys()
    assert after[again.user_id].events == before[again.user_id].events + 1
    assert after[again.user_id].resume[0].position_s == 60


async def test_impossible_events_are_put_aside_and_others_go_on(bus: TestBus) -> None:
    """A position outside the movie goes to the dead letters at the first attempt, with the reason."""
    good, bad = make_events(2)
    await bus.send(service.watched, dataclasses.replace(bad, position_s=-1), key=bad.user_id)
    await bus.send(service.watched, good, key=good.user_id)
    await bus.settle()
    (letter,) = await bus.dead_letters(service.watched)
    assert (letter.attempts, "position_s is -1" in letter.error) == (1, True)
    assert service.profiles[good.user_id].events == 1


async def test_a_deletion_is_put_aside_at_once(bus: TestBus) -> None:
    """A tombstone among the events is no event; it is not tried again."""
    await bus.send(service.watched, None, key=5)
    await bus.settle()
    (letter,) = await bus.dead_letters(service.watched)
    assert (letter.attempts, "the value is missing" in letter.error) == (1, True)


async def test_who_may_be_known_elsewhere_is_not_said_to_be_unknown(bus: TestBus) -> None:
    """While half of the partitions are with another member, viewers of those are answered with 503, the others with 404."""
    elsewhere = Consumer(
        service.watched.name, bootstrap_servers=service.app.bootstrap_servers, group_id=service.app.group_id
    )
    async with serving(service.web) as url, httpx2.AsyncClient(base_url=url) as client, elsewhere:
        while len(elsewhere.assignment()) != service.PARTITIONS // 2:
            await elsewhere.getmany(timeout_ms=50)
        answers = {user_id: await client.get(f"/users/{user_id}") for user_id in range(30)}
        for user_id, answer in answers.items():
            gone = TopicPartition(service.watched.name, partition_for_key(str(user_id).encode(), service.PARTITIONS))
            assert answer.status_code == (503 if gone in elsewhere.assignment() else 404), user_id
            for path in ("resume", "next"):
                status = (await client.get(f"/users/{user_id}/{path}")).status_code
                assert status == (503 if answer.status_code == 503 else 200)
        assert {answer.headers.get("Retry-After") for answer in answers.values() if answer.status_code == 503} == {"1"}


async def test_a_viewer_goes_on_where_they_stopped_over_http(bus: TestBus) -> None:
    """What one device reports is what another one gets; what makes no sense is refused with the reason."""
    async with (
        serving(service.web) as url,
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
        for path, malformed in (
            ("/users/99999999999999999999999/watched", body),
            ("/users/5/watched", {**body, "movie_id": 10**23}),
            ("/users/5/watched", {**body, "length_s": 10**23}),
        ):
            refused = await client.post(path, json=malformed)
            field = next(name for name in ("user_id", "movie_id", "length_s") if name in refused.text)
            assert (refused.status_code, field in refused.json()["error"]) == (422, True)
        assert (await client.get("/users/77")).status_code == 404
        assert "MovieFlix" in (await client.get("/")).text


async def test_the_page_hears_of_changes(bus: TestBus) -> None:
    """A change arrives as a server-sent event."""
    async with (
        serving(service.web) as url,
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


def trained(count: int = 12, **changes: object) -> tuple[Complete, list[MovieFactors]]:
    """A model of movies 1 to `count`: odd ones are of one kind, even ones of another."""
    movies = [
        MovieFactors(
            movie_id=movie_id, average=3.0, viewers=count - movie_id, factors=[1.0, 0.0] if movie_id % 2 else [0.0, 1.0]
        )
        for movie_id in range(1, count + 1)
    ]
    given = {
        "movies": count, "checksum": recommend.checksum(movies), "rank": 2, "regularisation": 0.1, "preferences": 9,
        "viewers": 3, "rmse": 0.9, "baseline_rmse": 1.1, "held_out": 2, "trained_at": AT, **changes,
    }  # fmt: skip
    return Complete(**given), movies  # type: ignore[arg-type]


async def publish(version: int, of: tuple[Complete, list[MovieFactors]]) -> int:
    """As the job does, from another app."""
    app = App("trainer", service.app.bootstrap_servers, service.app.schema_registry)
    topic = model.declare(app)
    async with app:
        return await model.publish(app, topic, version, *of)


async def serve(version: int, of: tuple[Complete, list[MovieFactors]]) -> None:
    """Publish a model that is waited for since before."""
    served = asyncio.ensure_future(service.recommender.serves(version))
    await asyncio.sleep(0)
    await publish(version, of)
    await served


async def send(*parts: ModelPart) -> None:
    """Records of the model as they come, and the service has read them."""
    for part in parts:
        await service.model_parts.topic.send(part, recommend.part_key(part))
    await service.model_parts.caught_up()


@pytest.fixture
async def client(bus: TestBus) -> AsyncIterator[httpx2.AsyncClient]:
    """The service over HTTP."""
    async with serving(service.web) as url, httpx2.AsyncClient(base_url=url) as running:
        yield running


async def following(client: httpx2.AsyncClient, path: str) -> AsyncIterator[list[dict[str, object]]]:
    """What a stream of server-sent events brings."""
    async with client.stream("GET", path) as live:
        async for line in live.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


async def test_a_rating_turns_the_next_recommendation_at_once_and_it_is_pushed(
    bus: TestBus, client: httpx2.AsyncClient
) -> None:
    """By popularity first; a movie that is loved brings its kind to the top; it is not recommended itself."""
    await serve(1, trained())
    pushed = following(client, "/users/5/next/live")
    (first,) = await anext(pushed)
    assert (first["by"], first["version"], first["movies"][0]["movie_id"]) == ("popularity", 1, 1)  # type: ignore[index]
    body = {"movie_id": 2, "position_s": 6000, "length_s": 6000, "action": "STOPPED", "rating": 5}
    assert (await client.post("/users/5/watched", json=body)).status_code == 202
    (second,) = await anext(pushed)
    assert [movie["movie_id"] for movie in second["movies"]][:5] == [4, 6, 8, 10, 12]  # type: ignore[attr-defined]
    asked = (await client.get("/users/5/next?count=5")).json()
    assert [movie["movie_id"] for movie in asked["movies"]] == [4, 6, 8, 10, 12]
    for wrong in ("0", "101", "x", "-1"):
        refused = await client.get(f"/users/5/next?count={wrong}")
        assert (refused.status_code, "count is" in refused.json()["error"]) == (422, True)
    await pushed.aclose()  # type: ignore[attr-defined]


async def test_a_new_model_is_swapped_in_whole_and_pushed(bus: TestBus, client: httpx2.AsyncClient) -> None:
    """While its records come the old one is served; at its end the new one; the old one's records are then gone from the topic."""
    assert (await client.get("/model")).json() == {"version": None}
    await serve(1, trained())
    pushed = following(client, "/users/5/next/live")
    await anext(pushed)
    complete, movies = trained(3)
    await send(*(ModelPart(version=2, movie=movie) for movie in movies))
    assert (await client.get("/model")).json()["version"] == 1
    assert await publish(2, (complete, movies)) == 13
    (recommendations,) = await anext(pushed)
    assert (recommendations["version"], len(recommendations["movies"])) == (2, 3)  # type: ignore[arg-type]
    served = (await client.get("/model")).json()
    assert (served["version"], served["movies"], served["rmse"]) == (2, 3, 0.9)
    await service.model_parts.caught_up()
    assert {part.version for part in service.model_parts.values()} == {2}
    await pushed.aclose()  # type: ignore[attr-defined]


async def test_a_service_that_starts_serves_the_newest_whole_model(bus: TestBus) -> None:
    """Behind it in the topic are one without an end and one whose checksum is another."""
    await publish(1, trained())
    complete, movies = trained(3)
    await send(*(ModelPart(version=2, movie=movie) for movie in movies))
    damaged = dataclasses.replace(complete, checksum=complete.checksum ^ 1)
    await send(*(ModelPart(version=3, movie=movie) for movie in movies), ModelPart(version=3, complete=damaged))
    await bus.restart()
    assert service.recommender.served is not None
    assert service.recommender.served.version == 1
    await serve(4, trained(5))
    await bus.restart()
    assert service.recommender.served.version == 4


async def test_a_model_that_does_not_fit_itself_is_not_published(bus: TestBus) -> None:
    """Nothing of it reaches the topic."""
    complete, movies = trained()
    with pytest.raises(recommend.Damaged, match="not 12"):
        await publish(1, (complete, movies[1:]))
    assert await bus.records(service.model_parts.topic) == []


async def test_without_a_model_popularity_is_served(bus: TestBus, client: httpx2.AsyncClient) -> None:
    """What most viewers have seen, without what this one has."""
    for user_id, movie_id in ((1, 7), (2, 7), (2, 8), (3, 8), (3, 7), (4, 7)):
        await bus.send(
            service.watched, dataclasses.replace(make_events(1)[0], user_id=user_id, movie_id=movie_id), user_id
        )
    await bus.settle()
    recommendations = (await client.get("/users/4/next")).json()
    assert (
        recommendations["by"],
        recommendations["version"],
        [movie["movie_id"] for movie in recommendations["movies"]],
    ) == ("popularity", None, [8])


async def test_resume_and_recommendation_are_the_same_on_another_device_and_after_a_restart(bus: TestBus) -> None:
    """What the tv reported, the phone gets, before and after a restart of the service."""
    await serve(1, trained())
    async with serving(service.web) as url, httpx2.AsyncClient(base_url=url) as tv:
        body = {"movie_id": 2, "position_s": 1200, "length_s": 6000, "device": "tv", "rating": 5}
        await tv.post("/users/5/watched", json=body)
        await bus.settle()
        before = (await tv.get("/users/5/resume")).json(), (await tv.get("/users/5/next")).json()
    await bus.restart()
    async with serving(service.web) as url, httpx2.AsyncClient(base_url=url) as phone:
        after = (await phone.get("/users/5/resume")).json(), (await phone.get("/users/5/next")).json()
    assert after == before
    assert (after[0][0]["position_s"], after[1]["movies"][0]["movie_id"]) == (1200, 4)


@pytest.mark.parametrize("point", with_variants(crash_points(), gate=["before-commit"]))
async def test_a_crash_at_any_step_leaves_profiles_and_tastes_exact(bus: TestBus, point: str) -> None:
    """They are those of the rules applied by hand, each event once."""
    devices = App("devices", bus.app.bootstrap_servers, bus.app.schema_registry)
    watched = devices.topic(service.watched.name, key=int, value=Watched, partitions=service.PARTITIONS)
    crash = bus.crash(at=point)
    async with devices:
        for watched_event in make_events(60):
            await watched.send(watched_event, watched_event.user_id)
    await crash
    await bus.settle()
    await bus.restart()
    profiles: dict[int, Profile] = {}
    tastes: dict[int, Taste] = {}
    for record in await bus.records(service.watched):
        assert record.value is not None
        event = record.value
        known = profiles.get(event.user_id) or Profile(user_id=event.user_id)
        profiles[event.user_id] = domain.apply(known, event, record.offset)
        liked = tastes.get(event.user_id) or Taste(user_id=event.user_id)
        tastes[event.user_id] = taste.apply(liked, event, record.offset)
    assert dict(service.profiles) == profiles
    assert dict(service.tastes) == tastes


async def test_dead_letters_are_replayed_after_a_fix(bus: TestBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stars up to 10 were a mistake of the rule: once it is mended, `busway dlq replay` brings the event to profile and taste."""
    event = dataclasses.replace(make_events(1)[0], rating=9.0)
    await bus.send(service.watched, event, key=event.user_id)
    await bus.settle()
    assert (len(await bus.dead_letters(service.watched)), event.user_id in service.profiles) == (1, False)
    for module in (domain, taste):
        monkeypatch.setattr(module, "check", lambda event: None)
    replay = await spawn_async(
        sys.executable, "-m", "busway.cli", "dlq", "replay", "movieflix.watched.movieflix.dlt",
        "--bootstrap-servers", str(bus.app.bootstrap_servers), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await replay.communicate()
    assert replay.returncode == 0, out + errors
    await bus.settle()
    assert (service.profiles[event.user_id].events, service.tastes[event.user_id].seen[0].rating) == (1, 9.0)


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
