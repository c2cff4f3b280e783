"""First records of a cluster's metadata.

Here: the levels of its features, and the settings that they need.
Not here: who writes them, and when (`quorum.metadata_log`); levels that change later (`controller.features`).
"""

from typing import Any

from busway_bus.kernel.dynamic_configs import CLUSTER_KEY
from busway_bus.metadata.features import has_elr, levels_of_new_clusters
from busway_bus.metadata.image import BROKER_RESOURCE
from busway_bus.metadata.records import ConfigRecord, FeatureLevelRecord


def first_records(min_isr: str | None = None) -> tuple[Any, ...]:
    """Return the records of a new cluster.

    Args:
        min_isr: min.insync.replicas of all brokers, as Kafka's controller writes it with eligible leader replicas:
            brokers with other values in their files would disagree on who is eligible. None for a node alone.
    """
    levels = levels_of_new_clusters()
    records: list[Any] = [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]
    if min_isr is not None and has_elr(levels):
        records.append(ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=CLUSTER_KEY, value=min_isr))
    return tuple(records)
