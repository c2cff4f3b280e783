"""The service: events in, profiles out. `busway run movieflix.service:app` from the folder above runs it.

What lives here: topics, the handler, the profiles in memory. What does not: the rules (`domain`), the page (`http`).

Profiles survive: each change is a record in the compacted topic `movieflix.profiles`, in the partition that has the number of the
user's events. Whoever is given partitions first reads those profiles back. A profile tells which event went in last, so an event that
comes twice changes nothing.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence

from busway import App, ConsumerRecord, Retry, TopicPartition
from movieflix import domain, http
from movieflix.events import Profile, Watched

PARTITIONS = 4


class Profiles:
    """The profiles of the partitions that this instance has, and who wants to hear of changes."""

    def __init__(self) -> None:
        self.by_user: dict[int, Profile] = {}
        self._listeners: set[asyncio.Queue[Profile]] = set()

    def get(self, user_id: int) -> Profile:
        """The profile of a user; an empty one for somebody new."""
        return self.by_user.get(user_id) or Profile(user_id=user_id)

    def put(self, profile: Profile) -> None:
        """Keep the newest profile and tell the listeners; one that does not keep up misses some, never the last."""
        self.by_user[profile.user_id] = profile
        for queue in self._listeners:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(profile)

    @contextlib.contextmanager
    def listening(self) -> Iterator["asyncio.Queue[Profile]"]:
        """Changes from now on, in a queue."""
        queue: asyncio.Queue[Profile] = asyncio.Queue(maxsize=1000)
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)


profiles = Profiles()


@contextlib.asynccontextmanager
async def with_page(app: App) -> AsyncIterator[None]:
    """The HTTP server runs as long as the app does; MOVIEFLIX_PORT, 0 for a free one, none without the variable."""
    port = os.environ.get("MOVIEFLIX_PORT")
    if port is None:
        yield
        return
    async with http.serving(http.create(profiles, watched), int(port)) as url:
        print(f"movieflix {url}", flush=True)  # noqa: T201 - who started it reads the address
        yield


app = App(
    "movieflix",
    bootstrap_servers=os.environ.get("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092"),
    schema_registry=os.environ.get("BUSWAY_SCHEMA_REGISTRY", "http://localhost:8081"),
    lifespan=with_page,
    # With a name of its own, an instance that comes back takes its partitions over at once (static membership).
    consumer={"group_instance_id": os.environ.get("MOVIEFLIX_INSTANCE")},
)
watched = app.topic("movieflix.watched", key=int, value=Watched, partitions=PARTITIONS)
changes = app.topic(
    "movieflix.profiles", key=int, value=Profile, partitions=PARTITIONS, configs={"cleanup.policy": "compact"}
)


@app.on_assigned
async def load(partitions: Sequence[TopicPartition]) -> None:
    """Read the profiles of these partitions back."""
    async for record in app.read(changes, partitions=[one.partition for one in partitions]):
        if record.value is not None:
            profiles.put(record.value)


@app.subscribe(watched, retry=Retry(give_up_on=(domain.Impossible,)))
async def keep_profile(event: Watched, record: ConsumerRecord[int, Watched]) -> None:
    """Bring the viewer's profile up to date."""
    before = profiles.get(event.user_id)
    after = domain.apply(before, event, record.offset)
    if after is before:
        return
    await changes.send_soon(after, key=event.user_id)
    profiles.put(after)
