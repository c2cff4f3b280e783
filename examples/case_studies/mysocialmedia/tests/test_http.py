"""The HTTP side on a real bus."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx2
import pytest
from mysocialmedia import http, service
from tests.support.patience import patient

from busway.testing import TestBus
from busway.web import serving

pytestmark = pytest.mark.slow


@pytest.fixture
async def bus() -> AsyncIterator[TestBus]:
    """The app on a fresh bus."""
    async with service.app.test() as running:
        yield running


@pytest.fixture
async def client(bus: TestBus) -> AsyncIterator[httpx2.AsyncClient]:
    """Asks its pages; two activities may be under way at once."""
    asgi = http.create(service.posts, service.activities, service.trends, in_flight=2)
    async with serving(asgi) as url, httpx2.AsyncClient(base_url=url, timeout=patient(20)) as asking:
        yield asking


async def test_what_users_do_is_answered_with_its_place_and_counted(bus: TestBus, client: httpx2.AsyncClient) -> None:
    """Post, like twice, unlike, comment, take the comment back, delete: 202 each, and then the totals."""
    posted = await client.post("/posts", json={"user_id": "a", "text": "Post 1"})
    assert posted.status_code == 202
    assert posted.json().keys() == {"post_id", "partition", "offset"}
    post = f"/posts/{posted.json()['post_id']}"
    for answer in (
        await client.post(f"{post}/likes", json={"user_id": "b"}),
        await client.post(f"{post}/likes", json={"user_id": "b"}),
        await client.post(f"{post}/likes", json={"user_id": "c"}),
        await client.delete(f"{post}/likes/c"),
        await client.post(f"{post}/comments", json={"user_id": "b", "text": "first", "comment_id": "1"}),
        await client.post(f"{post}/comments", json={"user_id": "b", "text": "second"}),
        await client.delete(f"{post}/comments/1", params={"user_id": "b"}),
    ):
        assert answer.status_code == 202, answer.text
    await bus.settle()
    shown = (await client.get(post)).json()
    assert (shown["text"], shown["likes"], shown["comments"]) == ("Post 1", 1, 1)
    assert (await client.delete(post, params={"user_id": "b"})).status_code == 403
    assert (await client.delete(post, params={"user_id": "a"})).status_code == 202
    await bus.settle()
    gone = await client.get(post)
    assert (gone.status_code, "was deleted by its author" in gone.json()["error"]) == (410, True)
    assert (await client.post(f"{post}/likes", json={"user_id": "b"})).status_code == 410
    assert await bus.dead_letters(service.activities) == []


REFUSED = [
    ("POST", "/posts", b"{", 400, "no JSON"),
    ("POST", "/posts", b'{"user_id": "a"}', 422, "text"),
    ("POST", "/posts", b'{"user_id": "a", "text": ""}', 422, "text is missing"),
    ("POST", "/posts", b'{"user_id": "a/b", "text": "x"}', 422, "user_id is 'a/b'"),
    ("POST", "/posts", b'{"user_id": 7, "text": "x"}', 422, "user_id"),
    ("POST", "/posts", b" " * 20_000, 413, "larger than"),
    ("POST", "/posts/p/likes", b'{"user_id": "a"}', 404, "there is no such post"),
    ("DELETE", "/posts/p?user_id=a", b"", 404, "there is no such post"),
    ("DELETE", "/posts/p", b"", 422, "user_id is missing; say who asks: /posts/p?user_id="),
    ("GET", "/posts/p", b"", 404, "there is no such post"),
    ("PUT", "/posts", b"", 405, "Method Not Allowed"),
]


async def test_what_cannot_be_is_refused_with_the_field_and_the_remedy(
    bus: TestBus, client: httpx2.AsyncClient
) -> None:
    """Nothing of it reaches the topic."""
    for method, path, body, status, reason in REFUSED:
        answer = await client.request(method, path, content=body)
        assert (answer.status_code, reason in answer.json()["error"]) == (status, True), answer.text
    assert await bus.records(service.activities) == []


async def test_above_capacity_requests_are_refused_and_none_that_was_taken_is_lost(
    bus: TestBus, client: httpx2.AsyncClient
) -> None:
    """While the broker is away two likes wait, and all others are asked to come again; once it is back, the two are counted."""
    assert (await client.post("/posts", json={"user_id": "a", "text": "x", "post_id": "p"})).status_code == 202
    await bus.settle()
    broker = bus._cluster.broker if bus._cluster is not None else None
    assert broker is not None
    await broker.stop()
    likes = [asyncio.ensure_future(client.post("/posts/p/likes", json={"user_id": f"u{n}"})) for n in range(9)]
    for answered, done in enumerate(asyncio.as_completed(likes), 1):
        answer = await done
        if answered <= 7:
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert "too many requests are under way" in answer.json()["error"]
        if answered == 7:
            await broker.start()
    assert sorted(like.result().status_code for like in likes) == [202] * 2 + [503] * 7
    await bus.settle()
    assert service.posts["p"].likes == 2


async def test_the_page_hears_of_trending_posts(bus: TestBus, client: httpx2.AsyncClient) -> None:
    """The first event has what is remembered; later ones the posts with their totals, hottest first."""
    assert "MySocialMedia" in (await client.get("/")).text
    for post, fans in (("p1", 1), ("p2", 3)):
        await client.post("/posts", json={"user_id": "a", "text": f"Post {post}", "post_id": post})
        for fan in range(fans):
            await client.post(f"/posts/{post}/likes", json={"user_id": f"u{fan}"})
    await bus.settle()
    async with client.stream("GET", "/live") as live:
        lines = live.aiter_lines()
        assert await anext(lines) == "retry: 1000"
        async for line in lines:
            if line.startswith("data: "):
                (now,) = json.loads(line.removeprefix("data: "))
                if len(now["trending"]) == 2:
                    break
    assert [(post["post_id"], post["likes"]) for post in now["trending"]] == [("p2", 3), ("p1", 1)]
    assert (now["posts"], now["likes"]) == (2, 4)
    assert [post["post_id"] for post in (await client.get("/trending")).json()] == ["p2", "p1"]
