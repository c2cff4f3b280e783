"""Users of MySocialMedia: each likes and comments every post, takes some of it back, and sends some of it twice.

Here: the requests, and the sets of who likes and says what, kept by hand.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Iterator
from typing import Final

import httpx2
from tests.compose.scenarios import eventually

POSTS: Final = 8
USERS: Final = 30
_scenario: Final[Iterator[int]] = itertools.count(1)


class MySocialMedia:
    """Thirty users at once; see `Scenario`."""

    service = "mysocialmedia"

    def __init__(self) -> None:
        self.half_way = asyncio.Event()
        number = next(_scenario)
        self._posts = [f"post-{number}-{post}" for post in range(POSTS)]
        self._likes: dict[str, set[str]] = {post: set() for post in self._posts}
        self._comments: dict[str, set[str]] = {post: set() for post in self._posts}
        self._users_half_way = 0

    async def prepare(self, http: httpx2.AsyncClient) -> None:
        """The posts."""
        for post in self._posts:
            await self._do(http.post("/posts", json={"user_id": "author", "text": f"this is {post}", "post_id": post}))
        await eventually(lambda: self._totals_are_right(http))

    async def load(self, http: httpx2.AsyncClient) -> None:
        """All users at once, each one request after the other."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(USERS):
                tasks.create_task(self._use(http, number))

    async def _use(self, http: httpx2.AsyncClient, number: int) -> None:
        user = f"user-{number}"
        for index, post in enumerate(self._posts):
            for _ in range(1 + (number + index) % 2):
                await self._do(http.post(f"/posts/{post}/likes", json={"user_id": user}))
            self._likes[post].add(user)
            said = {"user_id": user, "text": "well said", "comment_id": f"comment-{number}"}
            for _ in range(1 + (number + index) % 3 // 2):
                await self._do(http.post(f"/posts/{post}/comments", json=said))
            self._comments[post].add(user)
            if (number + index) % 4 == 0:
                await self._do(http.delete(f"/posts/{post}/likes/{user}"))
                self._likes[post].remove(user)
            if (number + index) % 5 == 0:
                await self._do(http.delete(f"/posts/{post}/comments/comment-{number}", params={"user_id": user}))
                self._comments[post].remove(user)
            if index == POSTS // 2:
                self._users_half_way += 1
                if self._users_half_way == USERS // 2:
                    self.half_way.set()

    @staticmethod
    async def _do(request: Awaitable[httpx2.Response]) -> None:
        answer = await request
        assert answer.status_code == 202, answer.text

    async def exact(self, http: httpx2.AsyncClient) -> None:
        """The totals of every post are the sizes of its sets."""
        await eventually(lambda: self._totals_are_right(http))

    async def _totals_are_right(self, http: httpx2.AsyncClient) -> bool:
        answers = await asyncio.gather(*(http.get(f"/posts/{post}") for post in self._posts))
        totals = [
            (response.json()["likes"], response.json()["comments"])
            for response in answers
            if response.status_code == 200
        ]
        return totals == [(len(self._likes[post]), len(self._comments[post])) for post in self._posts]
