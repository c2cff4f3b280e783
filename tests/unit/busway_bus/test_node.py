"""Which partitions of the image are this node's."""

from uuid import UUID

from tests.unit.busway_bus.controller.cluster import SmallCluster

from busway_bus.metadata.records import TOPIC, TOPIC_ID_INT
from busway_bus.node import partitions_of


def test_partitions_are_here_or_elsewhere() -> None:
    """By their replicas; the metadata log is always here."""
    cluster = SmallCluster()
    cluster.create("t", (1, 2), (2, 3))
    topic_id = cluster.image.topics["t"].topic_id
    here, elsewhere = partitions_of(cluster.image, 1)
    assert here == {("t", 0): topic_id, (TOPIC, 0): UUID(int=TOPIC_ID_INT)}
    assert elsewhere == {("t", 1): topic_id}
