"""Creation of topics, for Metadata, the coordinators and CreateTopics.

Here: settings of internal and dead-letter topics.
Not here: the rules (`controller.topics`).
"""

from dataclasses import replace

from busway_bus.controller.controller import ITSELF, ControllerRequestContext
from busway_bus.controller.topics import DEFAULT, CreateTopics, NewTopic, check_count
from busway_bus.handlers.common.context import NodeServices
from busway_bus.handlers.common.controller_batches import request_each
from busway_bus.kernel.limits import SEGMENT_BYTES_MIN
from busway_bus.kernel.quorum_configs import BROKER, CONTROLLER, roles_of
from busway_bus.kernel.topic_configs import fixed_configs
from busway_bus.kernel.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from busway_bus.metadata.image import TopicImage
from busway_bus.share.dead_letters import ALLOWED
from busway_protocol.errors import ErrorCode, KafkaError


async def create_topic(
    node: NodeServices,
    name: str,
    *,
    partitions: int = DEFAULT,
    replication_factor: int = DEFAULT,
    context: ControllerRequestContext = ITSELF,
) -> TopicImage:
    """Create a topic with default settings, an internal one with its own.

    Raises as `controller.topics.create`; KAFKA_STORAGE_ERROR if it is created but cannot be served.
    """
    topic = NewTopic(name=name, partitions=partitions, replication_factor=replication_factor)
    (created,) = await create_topics(node, (topic,), context)
    if isinstance(created, KafkaError):
        raise created
    return created


async def create_dead_letter_topic(node: NodeServices, name: str) -> None:
    """Create a missing dead-letter topic; timestamps are the letters', as in Kafka."""
    settings = {ALLOWED: "true", "message.timestamp.type": "CreateTime"}
    (created,) = await create_topics(node, (NewTopic(name=name, configs=settings),), ITSELF)
    if isinstance(created, KafkaError) and created.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise created


async def create_topics(
    node: NodeServices, topics: tuple[NewTopic, ...], context: ControllerRequestContext, *, validate_only: bool = False
) -> tuple[TopicImage | KafkaError, ...]:
    """Create or check topics independently; far too many partitions refuse all."""
    new_topics = [_as_kept(topic, node) for topic in topics]
    try:
        check_count(new_topics, node.config)
    except KafkaError as problem:
        return (problem,) * len(topics)

    def command(chunk: tuple[NewTopic, ...]) -> CreateTopics:
        return CreateTopics(topics=chunk, validate_only=validate_only)

    replies = await request_each(node.controller, new_topics, command, context)
    return replies if validate_only else tuple(_online(reply, node) for reply in replies)


def _online(reply: TopicImage | KafkaError, node: NodeServices) -> TopicImage | KafkaError:
    """Return the reply, or an error if the topic cannot be served."""
    if isinstance(reply, TopicImage):
        try:
            node.check_online(reply.topic_id)
        except KafkaError as problem:
            return problem
    return reply


def _as_kept(topic: NewTopic, node: NodeServices) -> NewTopic:
    """Return an internal topic with the broker's settings.

    Requested settings that are fixed are kept, to be refused by name.
    """
    kept = _kept(topic, node)
    fixed = fixed_configs(topic.name)
    never = {name: value for name, value in topic.configs.items() if name in fixed}
    return replace(kept, configs={**kept.configs, **never}) if never else kept


def _kept(topic: NewTopic, node: NodeServices) -> NewTopic:
    config = node.config
    if topic.name == OFFSETS_TOPIC:
        segment_bytes = max(config.get("offsets.topic.segment.bytes"), SEGMENT_BYTES_MIN)
        return NewTopic(
            name=topic.name,
            partitions=config.get("offsets.topic.num.partitions"),
            replication_factor=_replicas(node, config.get("offsets.topic.replication.factor")),
            configs={"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(segment_bytes)},
        )
    if topic.name == TRANSACTIONS_TOPIC:
        replicas = _replicas(node, config.get("transaction.state.log.replication.factor"))
        in_sync = min(config.get("transaction.state.log.min.isr"), replicas)
        segment_bytes = max(config.get("transaction.state.log.segment.bytes"), SEGMENT_BYTES_MIN)
        return NewTopic(
            name=topic.name,
            partitions=config.get("transaction.state.log.num.partitions"),
            replication_factor=replicas,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(in_sync),
                "segment.bytes": str(segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    if topic.name == SHARE_STATE_TOPIC:
        replicas = _replicas(node, config.get("share.coordinator.state.topic.replication.factor"))
        in_sync = min(config.get("share.coordinator.state.topic.min.isr"), replicas)
        segment_bytes = max(config.get("share.coordinator.state.topic.segment.bytes"), SEGMENT_BYTES_MIN)
        return NewTopic(
            name=topic.name,
            partitions=config.get("share.coordinator.state.topic.num.partitions"),
            replication_factor=replicas,
            configs={
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(in_sync),
                # The coordinator deletes what it does not need; the broker's default must not delete more.
                "retention.bytes": "-1",
                "retention.ms": "-1",
                "segment.bytes": str(segment_bytes),
            },
        )
    return topic


def _replicas(node: NodeServices, wanted: int) -> int:
    """Return the replicas of an internal topic: at most as many as the cluster has brokers.

    Registered brokers count, fenced or not, and voters, which are brokers too: the first of several that start must not
    create the topic with one replica. Where other nodes are the controllers the brokers are not known; the topic then
    waits for `wanted` of them, as in Kafka.
    """
    if roles_of(node.config.properties) != {BROKER, CONTROLLER}:
        return wanted
    return min(wanted, max(len(node.image.brokers), len(node.config.voters), 1))
