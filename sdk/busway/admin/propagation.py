"""Waiting until every broker knows new topics.

Here: asking the brokers of a cluster, within a bound.
Not here: creating topics (`admin`).

A broker learns of a topic from the metadata log, after the one that answered. Until then it answers
UNKNOWN_TOPIC_OR_PARTITION, as Apache Kafka's brokers do.
"""

import asyncio
from collections.abc import Collection
from typing import Final

from busway.cluster.client import ClusterClient
from busway.errors import BuswayError
from busway.net.clock import REAL_TIME
from busway_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

_WAIT_S: Final = 5.0
_PAUSE_S: Final = 0.02


async def wait_until_known(cluster: ClusterClient, topics: Collection[str]) -> None:
    """Return once each broker that answers knows the topics, or after 5 s. A single broker is not asked."""
    brokers = list(cluster.metadata.brokers)
    if len(brokers) < 2 or not topics:
        return
    try:
        async with REAL_TIME.timeout(_WAIT_S):
            await asyncio.gather(*(_known_by(cluster, broker, topics) for broker in brokers))
    except TimeoutError:
        return


async def _known_by(cluster: ClusterClient, broker: int, topics: Collection[str]) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
    )
    while True:
        try:
            answer = await cluster.ask_node(broker, request)
        except BuswayError:  # it is down, and learns of the topics when it starts
            return
        if not any(topic.error_code for topic in answer.topics):
            return
        await REAL_TIME.sleep(_PAUSE_S)
