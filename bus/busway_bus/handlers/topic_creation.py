"""Creating a topic with the node's defaults: what CreateTopics, Metadata and the group coordinator share.

What lives here: filling in -1 and the settings of internal topics. What does not: the rules (`controller.topics`).
"""

from collections.abc import Mapping
from typing import Final

from busway_bus.controller.topics import create
from busway_bus.handlers.context import NodeServices
from busway_bus.kernel.topics import OFFSETS_TOPIC
from busway_bus.metadata.image import TopicImage

DEFAULT: Final = -1


async def create_topic(
    node: NodeServices,
    name: str,
    *,
    partitions: int = DEFAULT,
    replication_factor: int = DEFAULT,
    configs: Mapping[str, str | None] | None = None,
) -> TopicImage:
    """Create a topic; -1 asks for num.partitions and default.replication.factor.

    Raises:
        KafkaError: see `controller.topics.create`; KAFKA_STORAGE_ERROR where it is created and cannot be served.
    """
    if name == OFFSETS_TOPIC:
        partitions = node.config.get("offsets.topic.num.partitions")
        replication_factor = 1
        segment_bytes = node.config.get("offsets.topic.segment.bytes")
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(max(segment_bytes, 1_048_576)),
        }
    topic_id = node.machine.uuid4()
    made = await node.metadata.run(
        lambda image: create(
            image,
            name,
            partitions=node.config.get("num.partitions") if partitions == DEFAULT else partitions,
            replication_factor=(
                node.config.get("default.replication.factor") if replication_factor == DEFAULT else replication_factor
            ),
            configs=configs or {},
            node_id=node.node_id,
            topic_id=topic_id,
            directory_id=node.directory_id,
        )
    )
    node.replicas.local.check_online(made.topic_id)
    return made
