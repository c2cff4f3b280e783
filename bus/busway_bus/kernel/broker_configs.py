"""The broker configuration keys: Kafka 4.3's names and types.

Here: the keys. *Served* keys work as in Apache Kafka. *Inert* keys (`inert_configs`) are accepted and shown, without
effect. *Refused* keys ask for what this version lacks: setting one must not look as if it worked.
Not here: defaults of topic settings, derived from the synonyms of topic keys.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from busway_bus.kernel.config_def import INT_MAX, ConfigKey, ConfigType, ConfigValue, by_name
from busway_bus.kernel.election_configs import ELECTION_CONFIGS
from busway_bus.kernel.group_bounds import BOUND_CONFIGS
from busway_bus.kernel.inert_configs import INERT_CONFIGS
from busway_bus.kernel.limits import CONNECTIONS_MAX, FETCH_BYTES_MAX, FRAME_BYTES_MAX
from busway_bus.kernel.membership_configs import MEMBERSHIP_CONFIGS
from busway_bus.kernel.replication_configs import REPLICATION_CONFIGS
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS

_B, _S, _I, _L, _W, _H = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
    ConfigType.SHORT,
)
_OTHER_UNITS: Final[Mapping[str, tuple[ConfigType, str, int | None]]] = {
    "log.retention.hours": (_I, "hours", 168),
    "log.retention.minutes": (_I, "minutes", None),
    "log.roll.hours": (_I, "hours", 168),
    "log.roll.jitter.hours": (_I, "hours", 0),
}
"""Broker synonyms in another unit than the topic key, with their defaults."""


def _key(
    name: str,
    kind: ConfigType,
    default: ConfigValue,
    doc: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> ConfigKey:
    return ConfigKey(name=name, type=kind, default=default, doc=doc, at_least=at_least, at_most=at_most)


def _topic_defaults() -> Iterator[ConfigKey]:
    """Derive the broker keys behind the topic keys.

    The last synonym, in the topic key's unit, has the default, as in Kafka.
    """
    for topic_key in TOPIC_CONFIGS.values():
        for synonym in topic_key.synonyms:
            doc = f"Default of the topic config {topic_key.name}: {topic_key.doc}"
            default = topic_key.default if synonym == topic_key.synonyms[-1] else None
            if synonym in _OTHER_UNITS:
                kind, unit, hours = _OTHER_UNITS[synonym]
                yield ConfigKey(name=synonym, type=kind, default=hours, doc=f"{doc} In {unit}.")
                continue
            yield ConfigKey(
                name=synonym,
                type=topic_key.type,
                default=default,
                doc=doc,
                at_least=topic_key.at_least,
                at_most=topic_key.at_most,
                one_of=topic_key.one_of,
                refuse=topic_key.refuse,
            )


SERVED_CONFIGS: Final[Mapping[str, ConfigKey]] = by_name(
    [
        *_topic_defaults(),
        *BOUND_CONFIGS,
        *ELECTION_CONFIGS,
        *MEMBERSHIP_CONFIGS,
        *REPLICATION_CONFIGS,
        _key("add.partitions.to.txn.retry.backoff.max.ms", _I, 100,
             "Longest wait, in ms, of a request for the end of the last transaction of its transactional id.",
             at_least=0),
        _key("busway.insecure", _B, False,
             "Allow listening beyond loopback although nothing is authenticated or encrypted."),
        _key("advertised.listeners", _W, None,
             "Addresses that clients connect to, where they differ from listeners."),
        _key("auto.create.topics.enable", _B, True,
             "Create a missing topic when a client that allows it requests its metadata."),
        _key("broker.id", _I, -1, "Old name of node.id."),
        _key("broker.rack", _S, None, "Rack of this broker, for the placement of replicas and for clients that fetch from the nearest one."),
        _key("connections.max.idle.ms", _L, 600_000, "Time in ms after which a connection without requests is closed."),
        _key("controller.listener.names", _W, [],
             "Names of the listeners for controllers, and for tools with --bootstrap-controller."),
        _key("controller.quorum.bootstrap.servers", _W, [],
             "Addresses of controllers; controller.quorum.voters is used instead."),
        _key("controller.quorum.election.backoff.max.ms", _I, 1000,
             "Longest backoff, in ms, of the successors that a resigning leader names, before their election.", at_least=0),
        _key("controller.quorum.election.timeout.ms", _I, 1000,
             "Longest duration, in ms, of an election of the controllers; each adds a random time of up to as much.", at_least=1),
        _key("controller.quorum.fetch.max.bytes", _I, 1_048_576,
             "Largest part of the metadata log, in bytes, in one response to a controller, and largest batch.", at_least=1),
        _key("controller.quorum.fetch.snapshot.max.bytes", _I, 1_048_576,
             "Largest part of a snapshot of the metadata, in bytes, in one response to a controller.", at_least=1),
        _key("controller.quorum.fetch.timeout.ms", _I, 2000,
             "Time in ms without a successful fetch after which a controller looks for another leader.", at_least=1),
        _key("controller.quorum.request.timeout.ms", _I, 2000,
             "Longest wait, in ms, of a controller for the response of another.", at_least=1),
        _key("controller.quorum.retry.backoff.ms", _I, 20,
             "Pause, in ms, before the next request to a controller that gave no response.", at_least=0),
        _key("controller.quorum.voters", _W, [],
             "The voters of the metadata quorum as id@host:port; without them this node is its only voter."),
        _key("default.replication.factor", _I, 1, "Replicas of a topic that is created without a number of them."),
        _key("delete.topic.enable", _B, True, "Whether topics may be deleted."),
        _key("errors.deadletterqueue.auto.create.topics.enable", _B, False,
             "Create the missing dead-letter topic of a share group with its first dead letter."),
        _key("errors.deadletterqueue.topic.name.prefix", _S, "dlq.",
             "Required prefix of the names of share groups' dead-letter topics; empty allows any name."),
        _key("fetch.max.bytes", _I, FETCH_BYTES_MAX,
             "Largest fetch response in bytes, whatever the client requests.", at_least=1024),
        _key("group.consumer.assignment.interval.ms", _I, 1000,
             "Shortest time in ms between two assignments of a consumer group.", at_least=0),
        ConfigKey(
            name="group.consumer.assignors", type=_W, default=["uniform", "range"], one_of=("uniform", "range"),
            doc="Assignors that members of consumer groups may request; the first is the default.",
        ),
        _key("group.consumer.heartbeat.interval.ms", _I, 5000,
             "Heartbeat interval of members of consumer groups, in ms.", at_least=1),
        _key("group.consumer.max.size", _I, INT_MAX, "Largest number of members of a consumer group.", at_least=1),
        ConfigKey(
            name="group.consumer.migration.policy", type=_S, default="bidirectional",
            one_of=("bidirectional", "disabled", "downgrade", "upgrade"),
            doc="Direction in which groups with members may change between the classic and the consumer protocol; empty groups may always change.",
        ),
        _key("group.consumer.session.timeout.ms", _I, 45_000,
             "Time in ms without a heartbeat after which a member of a consumer group is fenced.", at_least=1),
        _key("group.disconnect.grace.ms", _I, 3000,
             "Time in ms after which a dynamic member is fenced once the connection of its heartbeats was closed without LeaveGroup, unless another "
             "carries its requests meanwhile, and not before 1.5 heartbeat intervals since the last one; 10 s later if the connection was reset (RST), since "
             "the client may be alive and in its back-off; 0 waits for the end of its session, as Kafka.",
             at_least=0),
        _key("group.initial.rebalance.delay.ms", _I, 3000,
             "How long, in ms, the first rebalance of an empty group waits for more members."),
        _key("group.max.session.timeout.ms", _I, 1_800_000,
             "Longest session timeout, in ms, of a group member."),
        _key("group.max.size", _I, INT_MAX, "Largest number of members of a group.", at_least=1),
        _key("group.min.session.timeout.ms", _I, 6000,
             "Shortest session timeout, in ms, of a group member."),
        _key("group.share.assignment.interval.ms", _I, 1000,
             "Shortest time in ms between two assignments of a share group.", at_least=0),
        _key("group.share.delivery.count.limit", _I, 5,
             "Number of deliveries of a record to a share group, after which it is archived.", at_least=2, at_most=10),
        _key("group.share.heartbeat.interval.ms", _I, 5000,
             "Heartbeat interval of members of share groups, in ms.", at_least=1),
        _key("group.share.max.share.sessions", _I, 2000,
             "Largest number of share sessions of this broker, one for each member.", at_least=1),
        _key("group.share.max.size", _I, 200, "Largest number of members of a share group.", at_least=1, at_most=1000),
        _key("group.share.partition.max.record.locks", _I, 2000,
             "Largest number of records of a partition that are in flight in a share group.", at_least=100, at_most=10_000),
        _key("group.share.record.lock.duration.ms", _I, 30_000,
             "Duration, in ms, of the lock of a record that a member of a share group has acquired.",
             at_least=1000, at_most=3_600_000),
        _key("group.share.session.timeout.ms", _I, 45_000,
             "Time in ms without a heartbeat after which a member of a share group is fenced.", at_least=1),
        _key("inter.broker.listener.name", _S, None,
             "Listener on which the brokers of a cluster connect to each other; the one named PLAINTEXT by default, else the "
             "first. Without effect on a node alone."),
        _key("listener.security.protocol.map", _S,
             "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
             "Security protocol of each listener name; only PLAINTEXT is served."),
        _key("listeners", _W, ["PLAINTEXT://127.0.0.1:9092"],
             "Addresses to listen on, NAME://host:port; port 0 takes a free one."),
        _key("log.dir", _W, [".busway"], "The data directory."),
        _key("log.dirs", _W, None, "The data directory; one is served."),
        _key("log.cleaner.enable", _B, True, "Whether topics with cleanup.policy=compact are compacted."),
        _key("log.flush.offset.checkpoint.interval.ms", _I, 60_000,
             "Interval, in ms, at which the recovery points are written to disk.", at_least=0),
        _key("log.retention.check.interval.ms", _L, 300_000,
             "Interval, in ms, of checking which segments may be deleted.", at_least=1),
        _key("max.connections", _I, CONNECTIONS_MAX, "Largest number of open connections.", at_least=0),
        _key("max.connections.per.ip", _I, INT_MAX, "Largest number of open connections from one address.", at_least=0),
        _key("max.incremental.fetch.session.cache.slots", _I, 1000,
             "Largest number of fetch sessions.", at_least=0),
        _key("metrics.listener", _S, "",
             "Address, host:port, on which metrics for Prometheus and health are served over HTTP; empty is none. Needs the metrics extra."),
        _key("metadata.log.max.record.bytes.between.snapshots", _L, 20_971_520,
             "Bytes of the metadata log after which a snapshot is taken.", at_least=1),
        _key("metadata.log.max.snapshot.interval.ms", _L, 3_600_000,
             "Time in ms after which a snapshot of changed metadata is taken; 0 is never.", at_least=0),
        _key("metadata.max.retention.bytes", _L, 104_857_600,
             "Size in bytes of the metadata log and its snapshots beyond which the oldest are deleted, except two snapshots; -1 is never."),
        _key("metadata.max.retention.ms", _L, 604_800_000,
             "Age in ms at which snapshots of the metadata are deleted, except the newest two; -1 is never."),
        _key("max.request.partition.size.limit", _I, 2000,
             "Largest number of partitions in one DescribeTopicPartitions response.", at_least=1),
        _key("node.id", _I, 1, "Id of this node in the cluster.", at_least=0),
        _key("num.partitions", _I, 1,
             "Partitions of a topic that is created on first use, or without a number of them.", at_least=1),
        _key("offset.metadata.max.bytes", _I, 4096,
             "Longest text, in bytes, that may be stored with a committed offset."),
        _key("offsets.commit.timeout.ms", _I, 5000,
             "Longest wait, in ms, for a change of a group to be replicated.", at_least=1),
        _key("offsets.retention.check.interval.ms", _L, 600_000,
             "Interval, in ms, of checking for expired committed offsets.", at_least=1),
        _key("offsets.retention.minutes", _I, 10_080,
             "Minutes for which committed offsets of an empty group are kept.", at_least=1),
        _key("offsets.topic.num.partitions", _I, 50,
             "Partitions of the topic of committed offsets; fixed once it exists.", at_least=1),
        _key("offsets.topic.replication.factor", _H, 3,
             "Replicas of the topic of committed offsets, at most as many as there are brokers.", at_least=1),
        _key("offsets.topic.segment.bytes", _I, 104_857_600,
             "Segment size, in bytes, of the topic of committed offsets.", at_least=1),
        _key("process.roles", _W, ["broker", "controller"],
             "Roles of this process: broker and controller, or controller alone."),
        _key("producer.id.expiration.check.interval.ms", _I, 600_000,
             "Interval, in ms, of checking for idle producers. Internal in Kafka too, and not shown.", at_least=1),
        _key("producer.id.expiration.ms", _I, 86_400_000,
             "Time in ms after which an idle producer's sequence numbers are dropped.", at_least=1),
        _key("queued.max.request.bytes", _L, -1,
             "Memory, in bytes, for requests of all connections that are not handled yet; -1 is 96 MiB.",
             at_least=-1),
        _key("replica.high.watermark.checkpoint.interval.ms", _L, 5000,
             "Interval, in ms, at which the high watermarks are written to disk."),
        _key("request.timeout.ms", _I, 30_000,
             "Longest wait, in ms, for another broker's response, and for a transaction's state to be replicated."),
        _key("share.coordinator.snapshot.update.records.per.snapshot", _I, 500,
             "Number of updates of a share partition between two snapshots.",
             at_least=0, at_most=500),
        _key("share.coordinator.state.topic.min.isr", _H, 2,
             "In-sync replicas that a change of share groups' state needs, at most as many as there are replicas.", at_least=1),
        _key("share.coordinator.state.topic.num.partitions", _I, 50,
             "Partitions of the topic of share groups' state; fixed once it exists.", at_least=1),
        _key("share.coordinator.state.topic.replication.factor", _H, 3,
             "Replicas of the topic of share groups' state, at most as many as there are brokers.", at_least=1),
        _key("share.coordinator.state.topic.segment.bytes", _I, 104_857_600,
             "Segment size, in bytes, of the topic of share groups' state.", at_least=1),
        _key("share.coordinator.write.timeout.ms", _I, 5000,
             "Longest wait, in ms, for a change of a share group's state to be replicated.", at_least=1),
        _key("socket.listen.backlog.size", _I, 50, "Connections that may wait to be accepted.", at_least=1),
        _key("socket.request.max.bytes", _I, FRAME_BYTES_MAX,
             "Largest request, in bytes; a larger one is refused before it is read.", at_least=1),
        _key("socket.send.buffer.bytes", _I, 102_400,
             "SO_SNDBUF of clients' sockets: bytes on their way to one client; -1 lets the system choose.", at_least=-1),
        _key("transaction.abort.timed.out.transaction.cleanup.interval.ms", _I, 10_000,
             "Interval, in ms, of checking for transactions that have exceeded their timeout.", at_least=1),
        _key("transaction.max.timeout.ms", _I, 900_000,
             "Longest transaction timeout, in ms, of a producer.", at_least=1),
        _key("transaction.partition.verification.enable", _B, True,
             "Whether a partition's leader verifies a transaction with its coordinator before it appends the first records."),
        _key("transaction.remove.expired.transaction.cleanup.interval.ms", _I, 3_600_000,
             "Interval, in ms, of checking for expired transactional ids.", at_least=1),
        _key("transaction.state.log.min.isr", _I, 2,
             "In-sync replicas that a change of a transaction's state needs, at most as many as there are replicas.", at_least=1),
        _key("transaction.state.log.num.partitions", _I, 50,
             "Partitions of the topic of transactions; fixed once it exists.", at_least=1),
        _key("transaction.state.log.replication.factor", _H, 3,
             "Replicas of the topic of transactions, at most as many as there are brokers.", at_least=1),
        _key("transaction.state.log.segment.bytes", _I, 104_857_600,
             "Segment size, in bytes, of the topic of transactions.", at_least=1),
        _key("transactional.id.expiration.ms", _I, 604_800_000,
             "Time in ms after which an unused transactional id is dropped.", at_least=1),
    ]
)  # fmt: skip

BROKER_CONFIGS: Final[Mapping[str, ConfigKey]] = by_name([*SERVED_CONFIGS.values(), *INERT_CONFIGS.values()])

INTERNAL: Final = frozenset({"producer.id.expiration.check.interval.ms", "unclean.leader.election.interval.ms"})
"""Settings that Kafka accepts and does not show."""

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    synonym: key.synonyms for key in TOPIC_CONFIGS.values() for synonym in key.synonyms
}
"""Equivalent broker keys, strongest first, by each of them."""
