"""Whether a broker kept every acknowledged record through an unclean stop.

Here: the rule. Records are acknowledged once they are flushed, so that a killed broker has them, also after a power cut;
with another `durability` it may lack them. Then it may be elected like after a clean stop (KIP-966).
Not here: what the controller does with the answer (`controller.brokers`), damaged logs, which are offline (`log.store`).
"""

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.topic_configs import fixed_configs
from busway_bus.metadata.image import ClusterImage

_FLUSH = "flush"


def keeps_records(image: ClusterImage, config: BrokerConfig) -> bool:
    """Whether all topics with a replica on this broker count flushed records only."""
    of_brokers = {**image.broker_configs(""), **image.broker_configs(str(config.node_id))}
    default = of_brokers.get("log.durability", config.topic_default("durability"))
    for topic in image.topics.values():
        durability = {**image.topic_configs(topic.name), **fixed_configs(topic.name)}.get("durability", default)
        if durability != _FLUSH and any(config.node_id in partition.replicas for partition in topic.partitions):
            return False
    return True
