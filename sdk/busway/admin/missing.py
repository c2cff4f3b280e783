"""Topics that a client needs on the brokers.

Not here: which ones an app declares (`busway.app.declaring.declared_topics`).
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from busway.admin.admin import Admin
from busway.admin.new_topic import NewTopic
from busway.cluster.client import ClusterClient
from busway.errors import BrokerError, BuswayError
from busway.security.options import SecurityOptions
from busway.types import Addresses
from busway_protocol.errors import ErrorCode

logger: logging.Logger = logging.getLogger("busway.app")


class TopicMissing(BuswayError):
    """A missing read-only topic; the text names it, a similar one, and the remedy."""


class Client(Protocol):
    """The requesting client, and its brokers."""

    @property
    def name(self) -> str:
        """The client id."""

    @property
    def bootstrap_servers(self) -> Addresses:
        """`host:port`, several with commas or as a list."""

    @property
    def security(self) -> SecurityOptions:
        """TLS and SASL of connections to brokers."""


async def create_missing(client: Client, topics: Sequence[NewTopic]) -> None:
    if not topics:
        return
    async with Admin(client.bootstrap_servers, client_id=client.name, security=client.security) as admin:
        there = await admin.list_topics()
        for topic in topics:
            if topic.name in there:
                continue
            try:
                await admin.create_topics([topic])
            except BrokerError as problem:
                if problem.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another instance was faster
                    raise
            else:
                partitions = topic.partitions
                count = (
                    f"{partitions} partition{'s' * (partitions != 1)}"
                    if partitions > 0
                    else "as many partitions as brokers give"
                )
                logger.info("created topic %s with %s", topic.name, count)


async def ask_for(client: Client, topics: Iterable[str]) -> None:
    """Have brokers with auto.create.topics.enable create missing topics, once.

    Readers create none that is deleted later. Raise `ConnectionFailed` or `RequestTimedOut`.
    """
    cluster = ClusterClient(
        client.bootstrap_servers, client_id=client.name, create_topics=True, security=client.security
    )
    cluster.topics |= set(topics)
    try:
        await cluster.refresh()
    finally:
        await cluster.close()


async def partition_counts(client: Client, topics: Iterable[str]) -> dict[str, int]:
    """Return the number of partitions of topics; missing ones are auto-created by the brokers, as for a reader.

    Raises:
        BrokerError: a topic cannot be had.
    """
    names = sorted(topics)
    cluster = ClusterClient(
        client.bootstrap_servers, client_id=client.name, create_topics=True, security=client.security
    )
    try:
        await cluster.ensure_topics(names)
        counts = cluster.metadata.counts()
        return {name: counts[name] for name in names}
    finally:
        await cluster.close()
