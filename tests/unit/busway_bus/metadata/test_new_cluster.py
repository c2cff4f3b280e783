"""The first records of a cluster."""

from busway_bus.metadata.delta import Delta
from busway_bus.metadata.features import levels_of_new_clusters
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.new_cluster import first_records


def image(min_isr: str | None) -> ClusterImage:
    delta = Delta(ClusterImage())
    for record in first_records(min_isr):
        delta.apply(record)
    return delta.image()


def test_the_brokers_of_a_cluster_share_one_minimum_of_in_sync_replicas() -> None:
    """As Kafka's controller writes it; a node alone needs none."""
    assert image("2").broker_configs("") == {"min.insync.replicas": "2"}
    assert image(None).broker_configs("") == {}
    assert image("2").features == image(None).features == levels_of_new_clusters()
