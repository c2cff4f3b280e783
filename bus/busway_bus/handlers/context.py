"""Who asks, in which version, and what a handler may use.

What lives here: `NodeServices`, all that handlers see of the node, `RequestContext`, and `CloseConnection`, the last word. What does not: how any of it works.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from busway_bus.coordinator.runtime import GroupCoordinator
from busway_bus.kernel.config import BrokerConfig, Endpoint
from busway_bus.metadata.image import ClusterImage
from busway_bus.replication.fetch_sessions import FetchSessions
from busway_bus.replication.manager import ReplicaManager
from busway_bus.replication.metadata_log import MetadataLog


class CloseConnection(Exception):
    """The connection has to end, as it is the only answer that this client understands; the text is for the log."""


@dataclass(slots=True, kw_only=True)
class NodeServices:
    """The parts of the node that handlers call."""

    config: BrokerConfig
    cluster_id: str
    directory_id: UUID
    metadata: MetadataLog
    replicas: ReplicaManager
    sessions: FetchSessions
    groups: GroupCoordinator
    producer_ids: range = range(0)

    @property
    def node_id(self) -> int:
        """This node's id."""
        return self.config.node_id

    @property
    def image(self) -> ClusterImage:
        """The current picture of the cluster."""
        return self.metadata.image


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """One request's circumstances.

    Attributes:
        advertised: where clients of the listener that it came by find this node.
    """

    api_version: int
    client_id: str | None
    client_host: str
    advertised: Endpoint
    node: NodeServices


Request = Any
"""The decoded message of the handler's API."""
