"""What the tests of administration beside Apache Kafka ask: topics, settings, partitions, the quorum.

Here: the requests, as scenarios, and how their answers are made comparable: what depends on the machine or on the
moment is reduced to whether it is there.
Not here: running them (`test_admin_beside_kafka`).
"""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from tests.integration.broker.groups_probe import DEADLINE_S, Run

from busway_bus.kernel.broker_configs import BROKER_CONFIGS, INTERNAL
from busway_bus.kernel.group_configs import GROUP_CONFIGS
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS
from busway_bus.metadata.features import DEAD_LETTER_CONFIGS
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.cluster import DescribeClusterRequest
from busway_protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from busway_protocol.messages.configs import IncrementalAlterConfigsRequestAlterableConfig as Change
from busway_protocol.messages.configs import IncrementalAlterConfigsRequestAlterConfigsResource as ChangedResource
from busway_protocol.messages.groups_classic import (
    DescribeGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from busway_protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from busway_protocol.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from busway_protocol.messages.quorum import DescribeQuorumRequest, PartitionQuery, TopicQuery
from busway_protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from busway_protocol.messages.transactions import InitProducerIdRequest
from busway_protocol.schema import fields_of
from busway_protocol.types import ZERO_UUID

BROKER, BROKER_LOGGER = 4, 8
KAFKAS = frozenset(
    name
    for name in (*TOPIC_CONFIGS, *GROUP_CONFIGS, *BROKER_CONFIGS)
    if name
    not in {
        "durability",
        "log.durability",
        "busway.insecure",
        "group.disconnect.grace.ms",
        "metrics.listener",
        *INTERNAL,
    }
    and not name.startswith(DEAD_LETTER_CONFIGS)
)
"""Settings that both have."""
METADATA_LOG = "__cluster_metadata"
_VARIES = frozenset(
    {"log_dir", "total_bytes", "usable_bytes", "high_watermark", "log_end_offset", "cluster_id", "port"}
    | {"last_fetch_timestamp", "last_caught_up_timestamp", "throttle_time_ms", "producer_id"}
)
"""Fields that are compared by whether they have a value."""

SETTINGS = {
    "log.retention.hours": "24",
    "log.roll.ms": "86400000",
    "log.segment.bytes": "2000000",
    "min.insync.replicas": "2",
    "compression.type": "zstd",
    "log.flush.scheduler.interval.ms": "5000",
    "log.roll.jitter.hours": "1",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "2",
    "group.consumer.assignment.interval.ms": "900",
    "group.consumer.max.session.timeout.ms": "70000",
    "group.share.delivery.count.limit": "4",
}
"""Of both brokers: what an operator may have said of the topics' defaults, in each of the ways."""
_MACHINES = frozenset(
    {"advertised.listeners", "listeners", "log.dir", "log.dirs", "controller.listener.names", "max.connections"}
    | {"controller.quorum.voters", "process.roles", "offsets.topic.replication.factor"}
    | {"transaction.state.log.min.isr", "transaction.state.log.replication.factor", "group.initial.rebalance.delay.ms"}
)
"""Broker settings that the two are started with, or whose defaults differ by intent."""


class AdminRun(Run):
    """A run whose answers are compared with their words."""

    def _plain(self, value: Any, field: str = "") -> Any:
        if field in _VARIES:
            return value not in {-1, 0, "", None}
        if field.endswith("error_code"):
            return ErrorCode(value).name
        if isinstance(value, UUID):
            return "no id" if value == ZERO_UUID else self._names.get(str(value), "an id")
        if isinstance(value, (list, tuple)):
            kept = [self._plain(item) for item in value if self._owned(item)]
            return sorted(kept, key=repr)
        if hasattr(type(value), "message_info") or hasattr(type(value), "__slots__"):
            if isinstance(value, DescribeConfigsResult) and value.resource_type == BROKER:
                for entry in value.configs:
                    if entry.name in {
                        "listener.security.protocol.map",
                        "listeners",
                    }:  # read at the start here, and is reported so
                        entry.read_only = True
            return {
                struct_field.name: self._plain(getattr(value, struct_field.name), struct_field.name)
                for struct_field in fields_of(type(value))
            }
        return value

    def _owned(self, item: Any) -> bool:
        """Whether a row counts: other scenarios leave topics that they made on the shared Kafka."""
        if getattr(item, "resource_type", None) == BROKER_LOGGER:
            return False
        if isinstance(item, DescribeConfigsResourceResult):
            return item.name in KAFKAS and item.name not in _MACHINES
        names = [getattr(item, name, None) for name in ("topic", "name", "resource_name")]
        return not any(isinstance(name, str) and name.startswith("made-") for name in names)


async def log_directories(run: AdminRun) -> None:
    """Sizes of logs, in all versions; of partitions that do not exist, nothing is reported."""
    asked = [
        DescribableLogDirTopic(topic="read", partitions=[0, 1, 0, 7]),
        DescribableLogDirTopic(topic="missing", partitions=[0]),
    ]
    for version in range(1, 6):
        await run.ask(f"some, v{version}", DescribeLogDirsRequest(topics=asked), at_most=version)
    await run.ask("none", DescribeLogDirsRequest(topics=[]))
    await run.ask("all", DescribeLogDirsRequest(topics=None))


async def elections(run: AdminRun) -> None:
    """The one replica leads; what does not exist and unknown types of election are refused."""
    asked = [
        TopicPartitions(topic="read", partitions=[0, 0, 7, -1]),
        TopicPartitions(topic="missing", partitions=[0]),
        TopicPartitions(topic="read", partitions=[1]),
    ]
    for version in range(3):
        for kind in range(3) if version else (0,):
            request = ElectLeadersRequest(election_type=kind, topic_partitions=asked)
            await run.ask(f"some, v{version}, type {kind}", request, at_most=version)
        await run.ask(f"all, v{version}", ElectLeadersRequest(topic_partitions=None), at_most=version)
    await run.ask("all, unclean", ElectLeadersRequest(election_type=1, topic_partitions=None))
    await run.ask("none", ElectLeadersRequest(topic_partitions=[]))


async def reassignments(run: AdminRun) -> None:
    """To where a partition is, elsewhere, nowhere, twice the same; ends of moves that never were."""
    plans: dict[str, list[tuple[str, list[tuple[int, list[int] | None]]]]] = {
        "each kind": [("read", [(0, [1]), (1, None), (9, [1])]), ("missing", [(0, [1]), (0, None)])],
        "to others": [("read", [(0, [2]), (1, [1, 2]), (9, [1, 1])])],
        "not as a list should be": [("read", [(0, [1, 1]), (1, [])])],
        "to what no broker is": [("read", [(0, [-1]), (1, [5, 3])])],
        "the same twice": [("read", [(0, [1]), (0, [3])]), ("read", [(1, [1])])],
        "nothing": [],
    }
    for version in (0, 1):
        for label, plan in plans.items():
            topics = [
                ReassignableTopic(
                    name=name,
                    partitions=[ReassignablePartition(partition_index=number, replicas=to) for number, to in moves],
                )
                for name, moves in plan
            ]
            await run.ask(f"{label}, v{version}", AlterPartitionReassignmentsRequest(topics=topics), at_most=version)
    kept = [ReassignableTopic(name="read", partitions=[ReassignablePartition(partition_index=0, replicas=[1])])]
    await run.ask("same factor", AlterPartitionReassignmentsRequest(allow_replication_factor_change=False, topics=kept))
    await run.ask("under way", ListPartitionReassignmentsRequest(topics=None))
    asked = [
        ListPartitionReassignmentsTopics(name="read", partition_indexes=[0, 0, 7]),
        ListPartitionReassignmentsTopics(name="missing", partition_indexes=[0]),
    ]
    await run.ask("under way of some", ListPartitionReassignmentsRequest(topics=asked))


async def quorum(run: AdminRun) -> None:
    """The metadata log and nothing else, in all versions."""

    def asks(*wanted: tuple[str, int]) -> DescribeQuorumRequest:
        return DescribeQuorumRequest(
            topics=[
                TopicQuery(topic_name=name, partitions=[PartitionQuery(partition_index=number)])
                for name, number in wanted
            ]
        )

    both = TopicQuery(
        topic_name=METADATA_LOG, partitions=[PartitionQuery(partition_index=0), PartitionQuery(partition_index=1)]
    )
    for version in range(3):
        await run.ask(f"the log, v{version}", asks((METADATA_LOG, 0)), at_most=version)
        await run.ask(f"another partition, v{version}", asks((METADATA_LOG, 1)), at_most=version)
        await run.ask(f"another topic, v{version}", asks(("read", 0)), at_most=version)
        await run.ask(f"and another topic, v{version}", asks((METADATA_LOG, 0), ("read", 0)), at_most=version)
        await run.ask(f"and another partition, v{version}", DescribeQuorumRequest(topics=[both]), at_most=version)
    await run.ask("nothing", asks())


async def endpoints(run: AdminRun) -> None:
    """Of brokers, of controllers and of a kind that does not exist, by the listener that is asked."""
    for version, kind in ((0, 1), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3)):
        request = DescribeClusterRequest(endpoint_type=kind, include_cluster_authorized_operations=version == 2)
        await run.ask(f"endpoints of type {kind}, v{version}", request, at_most=version)


async def resources(run: AdminRun) -> None:
    """By type; broker loggers, which cannot be described here, are left out of the comparison."""
    for version, types in ((0, []), *((1, [kind]) for kind in (2, 4, 8, 16, 32, 0, -1, 99)), (1, [2, 4]), (1, [2, 99])):
        request = ListConfigResourcesRequest(resource_types=types)
        await run.ask(f"types {types}, v{version}", request, at_most=version)
    await run.ask("all", ListConfigResourcesRequest(resource_types=[]))


def topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    assigned: Sequence[tuple[int, list[int]]] = (),
    **configs: str | None,
) -> CreatableTopic:
    """A topic to be created; the underscores of `configs` are dots."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[CreatableReplicaAssignment(partition_index=number, broker_ids=to) for number, to in assigned],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


async def creations(run: AdminRun) -> None:
    """Created, checked, refused; with settings in every version."""

    async def create(label: str, *topics: CreatableTopic, check: bool = False, at_most: int | None = None) -> None:
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=check)
        await run.ask(label, request, at_most=at_most)

    for version in range(2, 8):
        made = topic(f"made-v{version}", 2, retention_ms="5", segment_bytes="2000000")
        await create(f"v{version}", made, at_most=version)
    await create("with defaults", topic("made-by-default", -1, -1))
    await create("checked", topic("made-not", 3), check=True)
    await create("assigned", topic("made-assigned", -1, -1, [(1, [1]), (0, [1])]))
    await create("again", topic("made-v7"))
    await create("again with nothing right", topic("made-v7", 0, 9, [(4, [5])], nope="1"))
    await create("tiny segments", topic("made-tiny", internal_segment_bytes="100"))
    refused = {
        "metadata log": topic("__cluster_metadata"),
        "name": topic("made/bad"),
        "no name": topic(""),
        "dot": topic("."),
        "dots": topic(".."),
        "long name": topic("n" * 250),
        "collision": topic("made.v7"),
        "no partitions": topic("made-no", 0),
        "fewer than none": topic("made-no", -3),
        "many partitions": topic("made-no", 10_001),
        "two replicas": topic("made-no", 1, 2),
        "no replicas": topic("made-no", 1, 0),
        "fewer replicas than none": topic("made-no", 1, -2),
        "nothing right": topic("made-no", 0, 0, retention_ms="x"),
        "factor and assignment": topic("made-no", -1, 1, [(0, [1])]),
        "count and assignment": topic("made-no", 1, -1, [(0, [1])]),
        "gap": topic("made-no", -1, -1, [(1, [1])]),
        "twice assigned": topic("made-no", -1, -1, [(0, [1]), (0, [1])]),
        "to another broker": topic("made-no", -1, -1, [(0, [2])]),
        "to one broker twice": topic("made-no", -1, -1, [(0, [1, 1])]),
        "to nobody": topic("made-no", -1, -1, [(0, [])]),
        "null": topic("made-no", retention_ms=None, nope=None),
    }
    for label, wanted in refused.items():
        await create(label, wanted, check=True)
    await create("twice in one request", topic("made-twice"), topic("made-twice"), topic("made-once"))
    await create("many partitions together", topic("made-much", 6_000), topic("made-more", 6_000))
    for number, (key, value) in enumerate(VALUES):
        await create(f"{number} {key}={value}", topic("made-no", **{key: value}), check=True)
    lags = topic("made-no", min_compaction_lag_ms="9", max_compaction_lag_ms="5")
    await create("contradiction", lags, check=True)


VALUES = (
    ("nope_x", "1"),
    ("message_format_version", "2.8"),
    *(("retention_ms", value) for value in ("abc", "-2", " 7 ", "7.0", "", "99999999999999999999")),
    *(("segment_bytes", value) for value in ("100", "2147483648")),
    *(("internal_segment_bytes", value) for value in ("-1", "0", "abc")),
    *(
        ("cleanup_policy", value)
        for value in ("xx", "", "delete,delete", "delete,", ",", " compact ", "compact, delete,x")
    ),
    *(("compression_type", value) for value in ("xx", "ZSTD", " zstd ")),
    *(("compression_gzip_level", value) for value in ("0", "-1", "10")),
    *(("compression_lz4_level", value) for value in ("0", "17", "18")),
    *(("compression_zstd_level", value) for value in ("-200000", "23")),
    *(("preallocate", value) for value in ("xx", "TRUE")),
    *(("min_cleanable_dirty_ratio", value) for value in ("2", "x", "-0.5")),
    *(("remote_storage_enable", value) for value in ("true", "false")),
    *(("leader_replication_throttled_replicas", value) for value in ("*", "0:1,1:1", "abc", "0:1,b")),
    ("message_timestamp_type", "x"),
    ("min_insync_replicas", "0"),
    ("min_insync_replicas", "2"),
    ("local_retention_ms", "-3"),
    ("retention_bytes", "-5"),
    ("flush_ms", "-1"),
)


async def growth(run: AdminRun) -> None:
    """More partitions, and what is no more."""

    def grow(count: int, *assigned: list[int], of: str = "made-grown", check: bool = False) -> CreatePartitionsRequest:
        assignments = [CreatePartitionsAssignment(broker_ids=to) for to in assigned] if assigned else None
        wanted = CreatePartitionsTopic(name=of, count=count, assignments=assignments)
        return CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000, validate_only=check)

    created = CreateTopicsRequest(topics=[topic("made-grown", 2)], timeout_ms=10_000)
    await run.ask("create", created)
    for count in (-1, 0, 1, 2):
        await run.ask(f"to {count}", grow(count))
    await run.ask("checked", grow(5, check=True))
    await run.ask("to another broker", grow(3, [2]))
    await run.ask("too few assigned", grow(4, [1]))
    await run.ask("assigned", grow(3, [1]))
    twice = grow(4)
    twice.topics = [*twice.topics, *grow(5).topics]
    await run.ask("twice", twice)
    await run.ask("grown", MetadataRequest(topics=[MetadataRequestTopic(name="made-grown")]))


def changes(
    *operations: tuple[str, int, str | None], of: str = "made-set", kind: int = 2, check: bool = False
) -> IncrementalAlterConfigsRequest:
    """A request to change settings by (name, operation, value)."""
    wanted = ChangedResource(
        resource_type=kind,
        resource_name=of,
        configs=[Change(name=name, config_operation=number, value=value) for name, number, value in operations],
    )
    return IncrementalAlterConfigsRequest(resources=[wanted], validate_only=check)


async def alterations(run: AdminRun) -> None:
    """Settings of topics, and what is no change of them."""
    created = CreateTopicsRequest(topics=[topic("made-set", retention_ms="9")], timeout_ms=10_000)
    await run.ask("create", created)
    set_to, delete, append, subtract = range(4)
    asked = {
        "set": changes(("retention.ms", set_to, "7"), ("cleanup.policy", append, "compact")),
        "take away": changes(("cleanup.policy", subtract, "delete"), ("retention.ms", delete, None)),
        "delete what is not set": changes(("nope", delete, None), ("segment.ms", delete, "")),
        "unknown": changes(("nope", set_to, "7")),
        "bad": changes(("retention.ms", set_to, "x")),
        "low": changes(("retention.ms", set_to, "-2")),
        "null": changes(("retention.ms", set_to, None), ("cleanup.policy", append, None)),
        "append to a number": changes(("retention.ms", append, "7")),
        "take from the unknown": changes(("nope", subtract, "7")),
        "twice": changes(("retention.ms", set_to, "7"), ("retention.ms", set_to, "8")),
        "twice of no topic": changes(("retention.ms", set_to, "7"), ("retention.ms", delete, None), of="none"),
        "no topic": changes(("retention.ms", set_to, "7"), of="none"),
        "bad topic": changes(("retention.ms", set_to, "7"), of="a/b"),
        "every topic": changes(("retention.ms", set_to, "7"), of=""),
        "nothing": changes(),
        "append a bad word": changes(("cleanup.policy", append, "xx")),
        "contradiction": changes(("min.compaction.lag.ms", set_to, "9"), ("max.compaction.lag.ms", set_to, "5")),
        "no broker": changes(("log.cleaner.threads", set_to, "7"), of="x", kind=4),
        "another broker": changes(("log.cleaner.threads", set_to, "7"), of="7", kind=4),
        "tidy up the broker": changes(("leader.replication.throttled.rate", delete, ""), of="1", kind=4),
        "unknown type": changes(("a", set_to, "7"), kind=99),
    }
    for label, request in asked.items():
        request.validate_only = True
        await run.ask(f"check: {label}", request)
        request.validate_only = False
        await run.ask(label, request)
    twice = changes(("retention.ms", set_to, "7"))
    twice.resources = [*twice.resources, *changes(("retention.ms", set_to, "8")).resources]
    await run.ask("one topic twice", twice)
    replaced = {"one": [("retention.ms", "7")], "null": [("retention.ms", None)], "unknown": [("nope", "7")]}
    for label, configs in replaced.items():
        resource = AlterConfigsResource(
            resource_type=2,
            resource_name="made-set",
            configs=[AlterableConfig(name=name, value=value) for name, value in configs],
        )
        await run.ask(f"replace: {label}", AlterConfigsRequest(resources=[resource], validate_only=False))


async def deletions(run: AdminRun) -> None:
    """By name, by id, by neither and by both."""
    created = [topic("made-gone"), topic("made-gone-too")]
    made = await run.ask("create", CreateTopicsRequest(topics=created, timeout_ms=10_000))
    topic_id = next(row.topic_id for row in made.topics if row.name == "made-gone")
    assert topic_id != ZERO_UUID  # as a metadata answer may have it while a broker has not heard of the topic

    def delete(*named: tuple[str | None, UUID]) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=known) for name, known in named], timeout_ms=10_000
        )

    for version in range(1, 6):
        unknown = DeleteTopicsRequest(topic_names=["none", "a/b"], timeout_ms=10_000)
        await run.ask(f"unknown, v{version}", unknown, at_most=version)
    twice = DeleteTopicsRequest(topic_names=["made-gone", "made-gone"], timeout_ms=10_000)
    await run.ask("twice, v5", twice, at_most=5)
    await run.ask("unknown", delete(("none", ZERO_UUID), ("", ZERO_UUID)))
    await run.ask("unknown id", delete((None, UUID(int=77))))
    await run.ask("neither", delete((None, ZERO_UUID)))
    await run.ask("both", delete(("made-gone", topic_id)))
    await run.ask("twice", delete(("made-gone", ZERO_UUID), ("made-gone", ZERO_UUID)))
    await run.ask("by id", delete((None, topic_id)))
    await run.ask("by name", delete(("made-gone-too", ZERO_UUID)))


async def settings(run: AdminRun) -> None:
    """What a topic and the cluster say of themselves, with all that stands behind it; what is refused."""
    made = topic("made-described", retention_ms="9", internal_segment_bytes="100", segment_ms="7")
    await run.ask("create", CreateTopicsRequest(topics=[made], timeout_ms=10_000))

    def describe(kind: int, name: str, keys: list[str] | None = None) -> DescribeConfigsRequest:
        wanted = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        return DescribeConfigsRequest(resources=[wanted], include_synonyms=True)

    for version in range(1, 5):
        for name in ("made-described", "left"):
            await run.ask(f"topic {name}, v{version}", describe(2, name), at_most=version)
    await run.ask("some keys", describe(2, "left", ["retention.ms", "nope", "internal.segment.bytes"]))
    await run.ask("every key", describe(2, "left", []))
    await run.ask("offsets", describe(2, "__consumer_offsets"))
    for kind, name in ((2, "a/b"), (2, ""), (4, "7"), (4, "x")):
        await run.ask(f"refused: {kind} {name}", describe(kind, name))
    await run.ask("cluster", describe(4, ""))
    await run.ask("broker", describe(4, "1"))


async def broker_settings(run: AdminRun) -> None:
    """Of the running broker and the default of all: set, described, refused, taken back, replaced."""
    set_to, delete, append, _ = range(4)

    async def look(label: str) -> None:
        for name in ("", "1"):
            wanted = DescribeConfigsResource(resource_type=4, resource_name=name, configuration_keys=None)
            request = DescribeConfigsRequest(resources=[wanted], include_synonyms=True)
            await run.ask(f"look: {label} {name}", request)

    asked = [
        ("", ("log.retention.ms", set_to, "7000000"), ("message.max.bytes", set_to, "2000000")),
        ("1", ("log.retention.ms", set_to, "6000000"), ("background.threads", set_to, "12")),
        ("1", ("log.cleanup.policy", append, "compact")),
        ("1", ("log.retention.hours", set_to, "2")),
        ("", ("num.partitions", set_to, "2")),
        ("1", ("auto.create.topics.enable", set_to, "false")),
        ("1", ("log.segment.bytes", set_to, "5")),
        ("1", ("log.retention.ms", set_to, "x")),
        ("1", ("log.retention.ms", set_to, None)),
        ("1", ("log.retention.bytes", append, "1")),
        ("1", ("group.consumer.assignment.interval.ms", set_to, "99999")),
        ("1", ("min.insync.replicas", set_to, "2")),
        ("", ("min.insync.replicas", delete, None)),
        ("", ("min.insync.replicas", set_to, "2")),
        ("", ("max.connections.per.ip", set_to, "700")),
        ("01", ("log.roll.ms", delete, "")),
        ("2", ("log.roll.ms", set_to, "5")),
        ("x", ("log.roll.ms", set_to, "5")),
    ]
    for name, *operations in asked:
        for check in (True, False):
            label = f"{'check: ' if check else ''}{name} {operations}"
            await run.ask(label, changes(*operations, of=name, kind=4, check=check))
    await look("set")
    gone = [
        ("log.retention.ms", delete, None),
        ("log.cleanup.policy", delete, None),
        ("message.max.bytes", delete, None),
    ]
    await run.ask("take back", changes(*gone, of="1", kind=4))
    for name, configs in (("1", {}), ("", {"min.insync.replicas": "1"})):
        resource = AlterConfigsResource(
            resource_type=4,
            resource_name=name,
            configs=[AlterableConfig(name=key, value=value) for key, value in configs.items()],
        )
        await run.ask(f"replace: {name}", AlterConfigsRequest(resources=[resource], validate_only=False))


async def group_settings(run: AdminRun) -> None:
    """Of groups that are not there: set, taken back, replaced, refused; described with all that stands behind them."""
    set_to, delete, append, subtract = range(4)
    group, kind, session = "made-group", 32, "consumer.session.timeout.ms"

    async def look(label: str, name: str = group, keys: list[str] | None = None, version: int = 4) -> None:
        wanted = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        request = DescribeConfigsRequest(resources=[wanted], include_synonyms=True)
        await run.ask(f"look: {label}", request, at_most=version)

    for version in range(1, 5):
        await look(f"as it comes, v{version}", version=version)
    await look("no name", "")
    await look("some", keys=[session, "nope"])
    asked = [
        (("share.auto.offset.reset", set_to, "earliest"),),
        ((session, set_to, " 65000 "), ("consumer.heartbeat.interval.ms", set_to, "6000")),
        (("share.isolation.level", set_to, "read_committed"), ("share.renew.acknowledge.enable", set_to, "false")),
        ((session, set_to, "44999"),),
        ((session, set_to, "70001"),),
        ((session, set_to, "x"),),
        ((session, set_to, ""),),
        ((session, set_to, "0"),),
        ((session, append, "50000"),),
        ((session, set_to, None),),
        ((session, set_to, "50000"), (session, delete, "")),
        (("consumer.assignment.interval.ms", set_to, "15001"),),
        (("consumer.assignment.interval.ms", set_to, "0"),),
        (("share.delivery.count.limit", set_to, "1"),),
        (("share.delivery.count.limit", set_to, "11"),),
        (("share.partition.max.record.locks", set_to, "4001"),),
        (("share.record.lock.duration.ms", set_to, "14999"),),
        (("share.isolation.level", set_to, "x"),),
        (("share.renew.acknowledge.enable", set_to, "x"),),
        *(
            (("share.auto.offset.reset", set_to, text),)
            for text in ("LATEST", "none", "x", "by_duration:", "by_duration:1")
        ),
        (("share.auto.offset.reset", set_to, "by_duration:PT1H"),),
        (("nope", set_to, "1"),),
        (("nope", delete, None), (session, delete, None)),
        (("nope", subtract, "1"),),
        (),
    ]
    for updates in asked:
        check = changes(*updates, of=group, kind=kind)
        check.validate_only = True
        await run.ask(f"check: {updates}", check)
        await run.ask(f"{updates}", changes(*updates, of=group, kind=kind))
    await look("changed")
    await run.ask("no name", changes((session, set_to, "50000"), of="", kind=kind))
    await run.ask("list", ListConfigResourcesRequest(resource_types=[kind]))
    replaced: dict[str, list[tuple[str, str | None]]] = {
        "one": [(session, "50000")], "null": [(session, None)], "unknown": [("nope", "7")], "low": [(session, "7")], "all": [],
    }  # fmt: skip
    for label, configs in replaced.items():
        own = [AlterableConfig(name=name, value=value) for name, value in configs]
        resource = AlterConfigsResource(resource_type=kind, resource_name=group, configs=own)
        await run.ask(f"replace: {label}", AlterConfigsRequest(resources=[resource], validate_only=False))
        await look(f"replaced: {label}")


async def metadata(run: AdminRun) -> None:
    """Topics that are there, are not, are named twice, badly, by id; what everybody may do."""

    async def ask(label: str, *topics: MetadataRequestTopic, version: int, **asked: bool) -> None:
        request = MetadataRequest(topics=list(topics), allow_auto_topic_creation=False, **asked)
        await run.ask(f"{label}, v{version}", request, at_most=version)

    read, missing = MetadataRequestTopic(name="read"), MetadataRequestTopic(name="missing")
    for version in range(4, 14):
        await ask("twice", read, read, missing, missing, version=version)
        await ask("bad", MetadataRequestTopic(name="a/b"), MetadataRequestTopic(name=""), version=version)
        if version >= 8:
            await ask("what may be done", read, missing, version=version, include_topic_authorized_operations=True)
        if 8 <= version <= 10:
            await ask("what may be done here", read, version=version, include_cluster_authorized_operations=True)
        if version >= 10:
            both = MetadataRequestTopic(name="read", topic_id=UUID(int=5))
            await ask("name and id", both, version=version)
        if version >= 12:
            await ask("unknown id", MetadataRequestTopic(name=None, topic_id=UUID(int=5)), version=version)
    described = await run.ask("cluster", DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert described.cluster_authorized_operations > 0
    names = [TopicRequest(name=name) for name in ("read", "missing", "a/b", "read")]
    await run.ask("partitions", DescribeTopicPartitionsRequest(topics=names))
    for limit in (0, 1, 2):
        page = DescribeTopicPartitionsRequest(topics=names[:1], response_partition_limit=limit)
        await run.ask(f"partitions, at most {limit}", page)


async def first_use(run: AdminRun) -> None:
    """What is not there is not there at first; who asks again has it."""
    names = ("made-on-use", "made-on-use", "a/b", "made.on-use", "__consumer_offsets", "read")
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    first = await run.admin.request(request)
    run.log.append(("first", sorted((topic.name, topic.error_code, topic.is_internal) for topic in first.topics)))
    async with asyncio.timeout(DEADLINE_S):
        while True:
            again = await run.admin.request(MetadataRequest(topics=request.topics[:1]))
            if again.topics[0].error_code == ErrorCode.NONE:
                break
    run.note("made", again)


async def producer_ids(run: AdminRun) -> None:
    """Always a new one, whichever is named; half of a name is none."""
    for version in range(6):
        for named in ((-1, -1), (77, 3), (77, -1), (-1, 3)) if version >= 3 else ((-1, -1),):
            request = InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=1000, producer_id=named[0], producer_epoch=named[1]
            )
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    answer = await run.admin.request(request, at_most=version)
                    if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # Kafka's first block is on its way
                        break
            assert answer.producer_id != 77
            run.note(f"{named}, v{version}", answer)
    await run.ask("no name", InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000))


async def groups_without_members(run: AdminRun) -> None:
    """Groups that are not there, one without a name, one that has offsets alone; then the topic of offsets is deleted."""

    async def look(label: str, group_id: str) -> None:
        topics = [OffsetFetchRequestTopic(name="read", partition_indexes=[0])]
        for version in range(1, 8):
            fetch = OffsetFetchRequest(group_id=group_id, topics=topics)
            await run.ask(f"{label}: fetch v{version}", fetch, at_most=version)
        for version in range(7):
            await run.ask(f"{label}: describe v{version}", DescribeGroupsRequest(groups=[group_id]), at_most=version)
        ops = DescribeGroupsRequest(groups=[group_id], include_authorized_operations=True)
        await run.ask(f"{label}: what may be done", ops)
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        forget = [OffsetDeleteRequestTopic(name="left", partitions=partitions)]
        await run.ask(f"{label}: forget", OffsetDeleteRequest(group_id=group_id, topics=forget))

    await look("no group", "made-none")
    await look("no name", "")
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
    commit = OffsetCommitRequestTopic(name="read", partitions=[partition])
    request = OffsetCommitRequest(group_id="made-group", member_id="", topics=[commit])
    await run.ask("commit", request, at_most=9)
    await look("offsets", "made-group")
    gone = DeleteTopicState(name="__consumer_offsets", topic_id=ZERO_UUID)
    await run.ask("delete", DeleteTopicsRequest(topics=[gone], timeout_ms=10_000))
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = await run.admin.request(DescribeGroupsRequest(groups=["made-group"]))
            if answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR:
                break
    await look("deleted", "made-group")
    await run.prepare("made-group")
    await look("made anew", "made-group")


SCENARIOS = (
    log_directories,
    elections,
    reassignments,
    quorum,
    endpoints,
    resources,
    creations,
    growth,
    alterations,
    deletions,
    settings,
    broker_settings,
    group_settings,
    metadata,
    first_use,
    producer_ids,
    groups_without_members,
)
CONTROLLER_SCENARIOS = (elections, reassignments, quorum, endpoints, creations, deletions, settings)
"""Those of APIs that controllers serve, but for settings of brokers: a controller of Kafka does not check them, this one does as a broker."""
