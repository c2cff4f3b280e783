"""Description of the cluster's nodes: brokers (KIP-700), and the metadata quorum (KIP-595).

Here: `ClusterAdmin`, a base of `Admin`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from busway.cluster.client import ClusterClient
from busway.errors import BrokerError
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.cluster import DescribeClusterRequest
from busway_protocol.messages.quorum import DescribeQuorumRequest, PartitionQuery, ReplicaState, TopicQuery

_FENCED_SINCE: Final = 2
_METADATA_TOPIC: Final = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers (id → host, port) and the controller, -1 without one.

    Attributes:
        fenced: brokers that are registered and do not serve, if they were requested.
    """

    cluster_id: str
    controller: int
    brokers: Mapping[int, tuple[str, int]]
    fenced: frozenset[int] = field(default=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    """A replica of the metadata log.

    Attributes:
        votes: it is a voter, else an observer.
        last_fetch_ms, last_caught_up_ms: wall times in ms; -1 if unknown.
    """

    node_id: int
    votes: bool
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """The metadata quorum, as its leader sees it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    replicas: Mapping[int, QuorumReplica]

    @property
    def log_end_offset(self) -> int:
        """End of the leader's log."""
        return self.replicas[self.leader_id].log_end_offset if self.leader_id in self.replicas else self.high_watermark


class ClusterAdmin:
    _cluster: ClusterClient

    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        """Return the brokers and the controller.

        Args:
            include_fenced: registered brokers that do not serve, too. Brokers before Apache Kafka 4.0 cannot name them.
        """
        connection = await self._cluster.any_connection()
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        if include_fenced and connection.version(ApiKey.DESCRIBE_CLUSTER) >= _FENCED_SINCE:
            request.include_fenced_brokers = True
        answer = await connection.request(request)
        _check(answer.error_code, "describing the cluster", answer.error_message)
        brokers = {broker.broker_id: (broker.host, broker.port) for broker in answer.brokers}
        fenced = frozenset(broker.broker_id for broker in answer.brokers if broker.is_fenced)
        return ClusterDescription(answer.cluster_id, answer.controller_id, brokers, fenced)

    async def describe_quorum(self) -> QuorumDescription:
        """Return the voters and observers of the metadata log."""
        topics = [TopicQuery(topic_name=_METADATA_TOPIC, partitions=[PartitionQuery(partition_index=0)])]
        answer = await self._cluster.ask_any(DescribeQuorumRequest(topics=topics))
        _check(answer.error_code, "describing the quorum", answer.error_message)
        partition = answer.topics[0].partitions[0]
        _check(partition.error_code, "describing the quorum", partition.error_message)
        voters = {replica.replica_id: _replica(replica, votes=True) for replica in partition.current_voters}
        observers = {replica.replica_id: _replica(replica, votes=False) for replica in partition.observers}
        return QuorumDescription(
            leader_id=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            high_watermark=partition.high_watermark,
            replicas={**observers, **voters},
        )


def _replica(state: ReplicaState, *, votes: bool) -> QuorumReplica:
    return QuorumReplica(
        node_id=state.replica_id,
        votes=votes,
        log_end_offset=state.log_end_offset,
        last_fetch_ms=state.last_fetch_timestamp,
        last_caught_up_ms=state.last_caught_up_timestamp,
    )


def _check(error_code: int, what: str, text: str | None = None) -> None:
    code = error_for(error_code)
    if code is not ErrorCode.NONE:
        raise BrokerError(code, what, text)
