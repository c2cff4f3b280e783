"""Current leaders in refusals of Fetch and Produce (KIP-951).

Here: who leads a partition, and the addresses of the leaders that were named.
Not here: which refusals have a hint (`fetch`, `produce`).
"""

from typing import Final, NamedTuple

from busway_bus.metadata.image import Address, ClusterImage
from busway_protocol.errors import ErrorCode

HINTED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Errors after which a client looks the leader up."""


class LeaderNode(NamedTuple):
    node_id: int
    address: Address
    rack: str | None


class LeaderHints:
    """The leaders named in one response, for clients of one listener."""

    __slots__ = ("_image", "_listener", "nodes")

    def __init__(self, image: ClusterImage, listener: str) -> None:
        self._image, self._listener = image, listener
        self.nodes: dict[int, LeaderNode] = {}

    def leader(self, topic: str, partition_index: int) -> tuple[int, int]:
        """Return the leader's id and epoch, else -1s; note its address."""
        partition = self._image.partition(topic, partition_index)
        if partition is None:
            return -1, -1
        address = self._image.address(partition.leader, self._listener)
        if address is not None:
            rack = self._image.brokers[partition.leader].rack
            self.nodes[partition.leader] = LeaderNode(partition.leader, address, rack)
        return partition.leader, partition.leader_epoch
