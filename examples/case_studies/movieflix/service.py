"""The service: events in, profiles out. `busway run movieflix.service:app` from the folder above runs it.

Here: topics, tables, the handler.
Not here: the rules (`domain`, `taste`), the page (`http`), the model (`recommender`).

Profiles and tastes survive: they are tables, kept in the compacted topics `movieflix.profiles` and `movieflix.tastes`, in the partition
that has the number of the user's events. An instance reads the rows of its new partitions back first. Each row tells which event went in
last, so an event that comes twice changes nothing, and a crash between the two rows mends the one that is behind.

The model is a global table: every instance has all of it.
"""

import os

from busway import App, ConsumerRecord, Retry
from busway.web import Web
from movieflix import domain, http, model, taste
from movieflix.events import ModelPart, Profile, Taste, Watched
from movieflix.recommender import Recommender

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
tastes = app.table("movieflix.tastes", key=int, value=Taste)
model_parts = app.global_table(model.TOPIC, value=ModelPart, partitions=1)
recommender = app.extend(Recommender(model_parts, tastes))
web = app.extend(Web(http.create(profiles, watched, recommender)))


@app.subscribe(watched, retry=Retry(give_up_on=(domain.Impossible,)))
async def keep_viewer(event: Watched | None, record: ConsumerRecord[int, Watched]) -> None:
    """Bring the viewer's profile and taste up to date."""
    if event is None:
        raise domain.Impossible("the value is missing; what a viewer watched is never deleted")
    user_id = event.user_id
    profile = profiles.get(user_id) or Profile(user_id=user_id)
    liked = tastes.get(user_id) or Taste(user_id=user_id)
    profile_after = domain.apply(profile, event, record.offset)
    liked_after = taste.apply(liked, event, record.offset)
    if profile_after is not profile:
        await profiles.put(user_id, profile_after)
    if liked_after is not liked:
        await tastes.put(user_id, liked_after)
        recommender.changed(user_id)
