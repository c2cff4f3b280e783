"""Topics of an app on the brokers.

What lives here: making those that are missing, counting partitions. What does not: declaring them (`declaring`).
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from busway.admin.admin import Admin, NewTopic
from busway.cluster.client import ClusterClient
from busway.errors import BrokerError
from busway_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from busway.app.bus import App


async def create_missing(app: "App", topics: Sequence[NewTopic]) -> None:
    """Create those of these topics that are not there.

    Raises:
        BrokerError: one cannot be created.
        ConnectionFailed: no broker can be reached.
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
                if problem.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another instance was faster
                    raise


async def ask_for(app: "App", topics: Iterable[str]) -> None:
    """Have brokers with auto.create.topics.enable create missing topics, once: the readers create none that is deleted later.

    Raises:
        ConnectionFailed, RequestTimedOut: no broker answers.
    """
    cluster = ClusterClient(app.bootstrap_servers, client_id=app.name, create_topics=True)
    cluster.topics |= set(topics)
    try:
        await cluster.refresh()
    finally:
        await cluster.close()


async def partition_counts(app: "App", topics: Iterable[str]) -> dict[str, int]:
    """How many partitions topics have; those that are missing are made as the brokers make them for whoever reads.

    Raises:
        BrokerError: a topic cannot be had.
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
    """Create an app's topics that are missing and that say how they are to be.

    Raises:
        BrokerError, ConnectionFailed: as `create_missing`.
    """
    declared = [topic for topic in app.topics.values() if topic.partitions is not None or topic.configs]
    await create_missing(
        app, [NewTopic(topic.name, topic.partitions or -1, configs=dict(topic.configs)) for topic in declared]
    )
