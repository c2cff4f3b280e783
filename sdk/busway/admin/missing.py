"""Topics of an app on the brokers.

What lives here: creating missing ones, counting partitions. What does not: declarations (`declaring`).
"""

import difflib
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from busway.admin.admin import Admin, NewTopic
from busway.cluster.client import ClusterClient
from busway.errors import BrokerError, BuswayError
from busway_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from busway.app.application import App

logger = logging.getLogger("busway.app")


class TopicMissing(BuswayError):
    """A read-only topic does not exist; the text has a similar name and the remedy."""


def read_only_topics(app: "App") -> list[str]:
    """Return topics that handlers only read: read_only, without partitions or configs."""
    read = (topic for route in (*app.routes, *app.queue_routes) for topic in route.topics)
    return sorted({topic.name for topic in read if topic.read_only and topic.partitions is None and not topic.configs})


async def _check_read_only(app: "App") -> None:
    if not (names := read_only_topics(app)):
        return
    async with Admin(app.bootstrap_servers, client_id=app.name) as admin:
        there = await admin.list_topics(internal=True)
    for name in names:
        if name not in there:
            close = difflib.get_close_matches(name, there, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise TopicMissing(
                f"app {app.name} reads topic {name}, which is read_only and does not exist; {hint}"
                "Start what writes it first, or give it partitions= to have it created here"
            )


async def create_missing(app: "App", topics: Sequence[NewTopic]) -> None:
    """Create those of these topics that do not exist.

    Raises:
        BrokerError: one cannot be created.
        ConnectionFailed: no broker is reachable.
    """
    if not topics:
        return
    async with Admin(app.bootstrap_servers, client_id=app.name) as admin:
        there = await admin.list_topics()
        for topic in topics:
            if topic.name in there:
                continue
            try:
                await admin.create_topics([topic])
            except BrokerError as problem:
                if problem.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # created by another instance
                    raise
            else:
                partitions = topic.partitions
                count = (
                    f"{partitions} partition{'s' * (partitions != 1)}"
                    if partitions > 0
                    else "as many partitions as brokers give"
                )
                logger.info("created topic %s with %s", topic.name, count)


async def ask_for(app: "App", topics: Iterable[str]) -> None:
    """Auto-create missing topics once, by brokers with auto.create.topics.enable.

    The readers themselves do not recreate a topic that is deleted later.

    Raises:
        ConnectionFailed, RequestTimedOut: no broker responds.
    """
    cluster = ClusterClient(app.bootstrap_servers, client_id=app.name, create_topics=True)
    cluster.topics |= set(topics)
    try:
        await cluster.refresh()
    finally:
        await cluster.close()


async def partition_counts(app: "App", topics: Iterable[str]) -> dict[str, int]:
    """Return the number of partitions by topic; brokers may auto-create missing ones.

    Raises:
        BrokerError: a topic is not available.
    """
    names = sorted(topics)
    cluster = ClusterClient(app.bootstrap_servers, client_id=app.name, create_topics=True)
    try:
        await cluster.ensure_topics(names)
        counts = cluster.metadata.counts()
        return {name: counts[name] for name in names}
    finally:
        await cluster.close()


async def create_declared(app: "App") -> None:
    """Create an app's missing topics that declare partitions or configs.

    Raises:
        BrokerError, ConnectionFailed: as `create_missing`.
        TopicMissing: a read-only topic does not exist.
    """
    await _check_read_only(app)
    declared = [topic for topic in app.topics.values() if topic.partitions is not None or topic.configs]
    await create_missing(
        app, [NewTopic(topic.name, topic.partitions or -1, configs=dict(topic.configs)) for topic in declared]
    )
