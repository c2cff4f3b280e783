"""The service: events in, profiles out. `busway run movieflix.service:app` from the folder above runs it.

What lives here: topics, the profiles, the handler. What does not: the rules (`domain`), the page (`http`).

Profiles survive: they are a table, kept in the compacted topic `movieflix.profiles`, in the partition that has the number of the user's
events. Whoever is given partitions first reads those profiles back. A profile tells which event went in last, so an event that comes
twice changes nothing.
"""

import os

from busway import App, ConsumerRecord, Retry
from busway.web import Web
from movieflix import domain, http
from movieflix.events import Profile, Watched

PARTITIONS = 4

app = App(
    "movieflix",
    bootstrap_servers=os.environ.get("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092"),
    schema_registry=os.environ.get("BUSWAY_SCHEMA_REGISTRY", "http://localhost:8081"),
    # With a name of its own, an instance that comes back takes its partitions over at once (static membership).
    consumer={"group_instance_id": os.environ.get("MOVIEFLIX_INSTANCE")},
)
watched = app.topic("movieflix.watched", key=int, value=Watched, partitions=PARTITIONS)
profiles = app.table("movieflix.profiles", key=int, value=Profile)
web = app.extend(Web(http.create(profiles, watched)))


@app.subscribe(watched, retry=Retry(give_up_on=(domain.Impossible,)))
async def keep_profile(event: Watched, record: ConsumerRecord[int, Watched]) -> None:
    """Bring the viewer's profile up to date."""
    before = profiles.get(event.user_id) or Profile(user_id=event.user_id)
    after = domain.apply(before, event, record.offset)
    if after is not before:
        await profiles.put(event.user_id, after)
