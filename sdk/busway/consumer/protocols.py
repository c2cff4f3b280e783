"""Which group protocol a consumer speaks.

What lives here: the choice between the classic one and that of KIP-848, by the options and by what the brokers serve. What does not: the
protocols themselves (`group_classic`, `group_modern`).
"""

import logging
from collections.abc import Callable
from typing import Final

from busway.cluster.client import ClusterClient
from busway.consumer.group import GroupMember, Listener
from busway.consumer.group_classic import ClassicMember
from busway.consumer.group_modern import ModernMember
from busway.errors import UnsupportedByBroker
from busway.options import USUAL_STRATEGIES, ConsumerOptions
from busway_protocol.apis import ApiKey

logger = logging.getLogger("busway.consumer")

_FEATURE: Final = "group.version"
_CLIENT_MADE_IDS: Final = 1
"""The version of ConsumerGroupHeartbeat from which on members name themselves (KIP-1082)."""


async def group_member(
    cluster: ClusterClient, options: ConsumerOptions, *, connect: Callable[[], ClusterClient], listener: Listener
) -> GroupMember:
    """A member of the group that the options name.

    Raises:
        UnsupportedByBroker: the options ask for a protocol that the brokers do not serve.
        ConnectionFailed: none can be reached.
    """
    wanted = options.group_protocol
    told_both = wanted == "auto" and options.partition_assignment_strategy != USUAL_STRATEGIES
    assignor = None if told_both else options.group_remote_assignor
    if wanted == "auto" and options.group_instance_id is not None and assignor is None:
        # A static member that was killed comes back to its place at once only here; the coordinator lets its old session end first.
        wanted = "classic"
    modern = wanted != "classic" and await _serves_modern(cluster, finalized=wanted != "consumer")
    if wanted == "consumer" and not modern:
        raise UnsupportedByBroker(
            "group_protocol='consumer' needs brokers that serve ConsumerGroupHeartbeat 1; "
            "these do not: leave it out for what they serve, or upgrade them"
        )
    if not modern and assignor is not None:
        raise UnsupportedByBroker(
            "group_remote_assignor is for group_protocol='consumer', which these brokers do not serve; leave it out"
        )
    logger.debug("group %s: speaking the %s protocol", options.group_id, "consumer" if modern else "classic")
    kind = ModernMember if modern else ClassicMember
    return kind(cluster, options, connect=connect, listener=listener)


async def _serves_modern(cluster: ClusterClient, *, finalized: bool) -> bool:
    """Whether the new protocol is served and, where it has to be `finalized`, is what the whole cluster agrees on."""
    connection = await cluster.any_connection()
    if finalized and connection.feature(_FEATURE) < 1:
        return False
    try:
        return connection.version(ApiKey.CONSUMER_GROUP_HEARTBEAT) >= _CLIENT_MADE_IDS
    except UnsupportedByBroker:
        return False
