"""The declared topics of an app, on the brokers.

Here: which it creates, and which must exist.
Not here: declaring (`declarations`), creating (`busway.admin.missing`).
"""

import difflib

from busway.admin.admin import Admin
from busway.admin.missing import TopicMissing, create_missing
from busway.admin.new_topic import NewTopic
from busway.app.declaring.declarations import Declarations


def read_only_topics(app: Declarations) -> list[str]:
    read = (topic for route in (*app.routes, *app.queue_routes) for topic in route.topics)
    return sorted({topic.name for topic in read if topic.read_only and topic.partitions is None and not topic.configs})


async def _check_read_only(app: Declarations) -> None:
    if not (names := read_only_topics(app)):
        return
    async with Admin(app.bootstrap_servers, client_id=app.name, security=app.security) as admin:
        there = await admin.list_topics(internal=True)
    for name in names:
        if name not in there:
            close = difflib.get_close_matches(name, there, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise TopicMissing(
                f"app {app.name} reads topic {name}, which is read_only and does not exist; {hint}"
                "Start what writes it first, or give it partitions= to have it created here"
            )


async def create_declared(app: Declarations) -> None:
    """Create missing topics that declare partitions or configs; raises as `create_missing`.

    Raises:
        TopicMissing: a handler reads a missing topic that another service creates.
    """
    await _check_read_only(app)
    declared = [topic for topic in app.topics.values() if topic.partitions is not None or topic.configs]
    await create_missing(
        app, [NewTopic(topic.name, topic.partitions or -1, configs=dict(topic.configs)) for topic in declared]
    )
