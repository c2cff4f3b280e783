"""The service: activities in, totals out. `busway run mysocialmedia.service:app` from the folder above runs it.

Here: topics, what is kept, the handler.
Not here: the rules (`domain`), what is trending (`trends`), the page (`http`).

Posts and marks are tables in compacted topics, in the partition that has the number of their activities. A batch writes each post and each
mark that it changed once, in one transaction with its place among the activities: all of that is there, or nothing.
"""

import datetime as dt
import os

from busway import App, Batch, ConsumerRecord, Retry
from busway.web import Web
from mysocialmedia import domain, http, trending
from mysocialmedia.events import Activity, Mark, Post
from mysocialmedia.events import Trending as TrendingPosts
from mysocialmedia.trends import Trends

PARTITIONS = 4
HALF_LIFE = dt.timedelta(seconds=float(os.environ.get("MYSOCIALMEDIA_HALF_LIFE_S", trending.HALF_LIFE.total_seconds())))

app = App(
    "mysocialmedia",
    bootstrap_servers=os.environ.get("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092"),
    schema_registry=os.environ.get("BUSWAY_SCHEMA_REGISTRY", "http://localhost:8081"),
    # With a name of its own, an instance that comes back takes its partitions over at once (static membership).
    consumer={"group_instance_id": os.environ.get("MYSOCIALMEDIA_INSTANCE")},
)
activities = app.topic("mysocialmedia.activity", value=Activity, partitions=PARTITIONS)
posts = app.table("mysocialmedia.posts", value=Post)
marks = app.table("mysocialmedia.marks", value=Mark)
hot = app.global_table("mysocialmedia.trending", key=int, value=TrendingPosts, partitions=1)
wall = domain.Wall(posts, marks, half_life=HALF_LIFE)
trends = app.extend(Trends(posts, hot, wall, half_life=HALF_LIFE))
web = app.extend(Web(http.create(posts, activities, trends)))


@app.subscribe(
    activities,
    batch=Batch(max_records=1000, max_wait_s=0.02),
    retry=Retry(give_up_on=(domain.Impossible,)),
    guarantee="exactly_once",
)
async def count(records: list[ConsumerRecord[str, Activity]]) -> None:
    """Bring the totals up to date."""
    changes = domain.Changes()
    for record in records:
        activity = record.value
        if activity is None or record.key != activity.post_id:
            raise domain.Impossible(f"key is {record.key!r}; it is the post_id of the activity, which must be there")
        received = dt.datetime.fromtimestamp(record.timestamp_ms / 1000, dt.UTC)
        wall.apply(activity, changes, received=received)
    partition = records[0].partition
    for post_id, post in changes.posts.items():
        await posts.put(post_id, post, partition=partition)
    for key, mark in changes.marks.items():
        if mark is not None:
            await marks.put(key, mark, partition=partition)
        elif key in marks:
            await marks.delete(key)
    wall.written(changes)
    trends.changed(partition, changes, len(records))
