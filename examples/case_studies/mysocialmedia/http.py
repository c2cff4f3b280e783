"""The HTTP side: what users do, posts and trending as JSON, the live page.

Here: routes, what is refused, and the bound on what is under way.
Not here: totals (`service`), rules (`domain`), the server, health and metrics (`busway.web`).

| path | what |
|---|---|
| `GET /` | the page |
| `POST /posts` | `{"user_id", "text", "post_id"?}`; without an id it gets one |
| `GET /posts/{id}` | the post with its totals |
| `DELETE /posts/{id}?user_id=` | by its author |
| `POST /posts/{id}/likes` | `{"user_id"}` |
| `DELETE /posts/{id}/likes/{user_id}` | also when there is none |
| `POST /posts/{id}/comments` | `{"user_id", "text", "comment_id"?}` |
| `DELETE /posts/{id}/comments/{comment_id}?user_id=` | by its author; also when there is none |
| `GET /trending` | hottest first |
| `GET /live` | what the page shows, as server-sent events |

What users do is answered with 202 and its place in the topic once it is acknowledged, so it is never lost; it is in the totals moments
later. Above `IN_FLIGHT_MOST` such requests more are refused with 503 and Retry-After: clients that can wait do, and memory stays bounded.
"""

import datetime as dt
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from busway import RecordMetadata, Table, Topic
from busway.web import Refused, application, event_stream, json_response, not_here, read_json
from mysocialmedia import domain
from mysocialmedia.events import Activity, Kind, Post
from mysocialmedia.trends import Trends

PAGE: Final = Path(__file__).parent / "page.html"
IN_FLIGHT_MOST: Final = 2000
RETRY_AFTER_S: Final = 1
YOUNG_MOST: Final = 10_000
"""Posts that were accepted here and may not be in the table yet."""
BODY_MOST: Final = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPost:
    """What a device tells of a post."""

    user_id: str
    text: str
    post_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLike:
    """Who likes it."""

    user_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewComment:
    """What a device tells of a comment. With an id of its own a device may send it again when it heard no answer."""

    user_id: str
    text: str
    comment_id: str | None = None


class Desk:
    """Takes what users do.

    Args:
        posts: what is known.
        activities: where it goes.
        in_flight: how many may wait for their acknowledgement.
    """

    def __init__(self, posts: Table[str, Post], activities: Topic[str, Activity], *, in_flight: int) -> None:
        self.posts = posts
        self._activities = activities
        self._free = in_flight
        self._young: OrderedDict[str, None] = OrderedDict()

    async def take(self, kind: Kind, post_id: str, user_id: str, **more: str) -> RecordMetadata:
        """Send an activity, wait until it is safe.

        Raises:
            Refused: 422 when it makes no sense, 503 when too many wait.
        """
        activity = Activity(kind=kind, post_id=post_id, user_id=user_id, at=dt.datetime.now(dt.UTC), **more)
        try:
            domain.check(activity)
        except domain.Impossible as problem:
            raise Refused(422, str(problem)) from None
        if not self._free:
            refused = Refused(503, f"too many requests are under way; try again in {RETRY_AFTER_S} s")
            refused.headers = {"Retry-After": str(RETRY_AFTER_S)}
            raise refused
        self._free -= 1
        try:
            done = await self._activities.send(activity, key=post_id)
        finally:
            self._free += 1
        if kind is Kind.POSTED:
            self._young[post_id] = None
            if len(self._young) > YOUNG_MOST:
                self._young.popitem(last=False)
        return done

    def post(self, post_id: str) -> Post | None:
        """The post; None when it was just accepted, or may be in a partition that another instance has.

        Raises:
            Refused: 404 when there is none, 410 when it was deleted.
        """
        post = self.posts.get(post_id)
        if post is None:
            if self.posts.covers(post_id) and post_id not in self._young:
                raise Refused(404, f"post_id is {post_id!r:.120}; there is no such post")
        elif post.deleted:
            raise Refused(410, f"post {post_id} was deleted by its author")
        return post


def create(
    posts: Table[str, Post],
    activities: Topic[str, Activity],
    trends: Trends,
    *,
    in_flight: int = IN_FLIGHT_MOST,
) -> Starlette:
    """The application over these tables; activities go to their topic."""
    desk = Desk(posts, activities, in_flight=in_flight)

    async def page(request: Request) -> Response:
        return FileResponse(PAGE, media_type="text/html")

    async def post(request: Request) -> Response:
        body = await read_json(request, NewPost, max_bytes=BODY_MOST)
        post_id = body.post_id if body.post_id is not None else uuid.uuid4().hex
        return _accepted(await desk.take(Kind.POSTED, post_id, body.user_id, text=body.text), post_id=post_id)

    async def show(request: Request) -> Response:
        post = desk.post(request.path_params["post_id"])
        if post is None:
            raise not_here(f"post {request.path_params['post_id']}")
        return json_response(post)

    async def delete(request: Request) -> Response:
        post_id, user_id = request.path_params["post_id"], _user(request)
        post = desk.post(post_id)
        if post is not None and post.user_id != user_id:
            raise Refused(403, f"user_id is {user_id!r:.120}; a post is deleted by its author")
        return _accepted(await desk.take(Kind.DELETED, post_id, user_id))

    async def like(request: Request) -> Response:
        body = await read_json(request, NewLike, max_bytes=BODY_MOST)
        desk.post(request.path_params["post_id"])
        return _accepted(await desk.take(Kind.LIKED, request.path_params["post_id"], body.user_id))

    async def unlike(request: Request) -> Response:
        desk.post(request.path_params["post_id"])
        return _accepted(await desk.take(Kind.UNLIKED, **request.path_params))

    async def comment(request: Request) -> Response:
        body = await read_json(request, NewComment, max_bytes=BODY_MOST)
        comment_id = body.comment_id if body.comment_id is not None else uuid.uuid4().hex
        post_id = request.path_params["post_id"]
        desk.post(post_id)
        done = await desk.take(Kind.COMMENTED, post_id, body.user_id, comment_id=comment_id, text=body.text)
        return _accepted(done, comment_id=comment_id)

    async def uncomment(request: Request) -> Response:
        post_id, comment_id = request.path_params["post_id"], request.path_params["comment_id"]
        user_id = _user(request)
        desk.post(post_id)
        return _accepted(await desk.take(Kind.COMMENT_DELETED, post_id, user_id, comment_id=comment_id))

    async def hottest(request: Request) -> Response:
        return json_response(trends.now(whole=False).trending)

    async def live(request: Request) -> Response:
        return event_stream(request, trends.feed.listening(), key=lambda now: 0, first=lambda: [trends.now(whole=True)])

    return application(
        [
            Route("/", page),
            Route("/posts", post, methods=["POST"]),
            Route("/posts/{post_id}", show),
            Route("/posts/{post_id}", delete, methods=["DELETE"]),
            Route("/posts/{post_id}/likes", like, methods=["POST"]),
            Route("/posts/{post_id}/likes/{user_id}", unlike, methods=["DELETE"]),
            Route("/posts/{post_id}/comments", comment, methods=["POST"]),
            Route("/posts/{post_id}/comments/{comment_id}", uncomment, methods=["DELETE"]),
            Route("/trending", hottest),
            Route("/live", live),
        ]
    )


def _user(request: Request) -> str:
    user_id = request.query_params.get("user_id")
    if user_id is None:
        raise Refused(422, f"user_id is missing; say who asks: {request.url.path}?user_id=…")
    return user_id


def _accepted(done: RecordMetadata, **ids: str) -> Response:
    return json_response({**ids, "partition": done.partition, "offset": done.offset}, 202)
