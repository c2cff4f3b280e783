"""Administration: topics, groups, settings, offsets.

Here: `Admin`.
Not here: `cluster`, `explanations`, `features`, `share_groups`, `transactions`. Refusals raise `BrokerError` with the broker's
text.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal

from busway.admin.cluster import ClusterAdmin
from busway.admin.explanations import ExplanationsAdmin
from busway.admin.features import FeaturesAdmin
from busway.admin.groups import GroupsAdmin
from busway.admin.new_topic import NewTopic
from busway.admin.propagation import wait_until_known
from busway.admin.share_groups import ShareGroupsAdmin
from busway.admin.transactions import TransactionsAdmin
from busway.cluster.client import ClusterClient, MetadataRecovery
from busway.cluster.metadata import TopicInfo
from busway.errors import BrokerError
from busway.security.choosing import taken
from busway.types import Addresses, TopicPartition
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from busway_protocol.messages.configs import IncrementalAlterConfigsRequestAlterableConfig as AlterableConfig
from busway_protocol.messages.configs import IncrementalAlterConfigsRequestAlterConfigsResource as AlterResource
from busway_protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from busway_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

TOPIC: Final = 2
BROKER: Final = 4
_SET, _DELETE = 0, 1
_NAMED_DELETE: Final = 6


_OF_TOPIC, _DEFAULT = 1, 5
"""Sources of a setting (KIP-226). A topic inherits unset ones from the broker, the cluster or Kafka."""


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A setting in force; `default` if inherited, or for a broker set nowhere."""

    name: str
    value: str | None
    default: bool
    read_only: bool
    documentation: str | None


class Admin(ClusterAdmin, ExplanationsAdmin, FeaturesAdmin, GroupsAdmin, ShareGroupsAdmin, TransactionsAdmin):
    """Administration client of a cluster.

    Args:
        bootstrap_servers: `host:port`, several with commas or as a list.
        request_timeout_ms: for each response.
        metadata_recovery_strategy, metadata_recovery_rebootstrap_trigger_ms: as in `ConsumerOptions`.
        options: the fields of `SecurityOptions`, or `security`, such an object.
    """

    def __init__(
        self,
        bootstrap_servers: Addresses = "localhost:9092",
        *,
        client_id: str = "busway-admin",
        request_timeout_ms: int = 30_000,
        metadata_recovery_strategy: Literal["rebootstrap", "none"] = "rebootstrap",
        metadata_recovery_rebootstrap_trigger_ms: int = 300_000,
        **options: Any,
    ) -> None:
        security, options = taken(options)
        if options:
            raise TypeError(f"{next(iter(options))} is no option of Admin; there are those of SecurityOptions")
        self._timeout_ms = request_timeout_ms
        self._cluster = ClusterClient(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_s=request_timeout_ms / 1000,
            security=security,
            recovery=MetadataRecovery(metadata_recovery_strategy, metadata_recovery_rebootstrap_trigger_ms),
        )

    async def start(self) -> None:
        """Connect.

        Raises:
            ConnectionFailed: no broker is reachable.
            AuthenticationFailed: the brokers refuse this client, or their certificates are refused.
        """
        await self._cluster.start()

    async def stop(self) -> None:
        """Disconnect."""
        await self._cluster.close()

    async def __aenter__(self) -> "Admin":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # Topics

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics; raise the first error, but create the others.

        Returns once every broker of the cluster knows them, after 5 s at most.
        """
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    assignments=[],
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
                )
                for topic in topics
            ],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        answer = await self._cluster.ask_controller(request)
        if not validate_only:
            await wait_until_known(self._cluster, [topic.name for topic in answer.topics if not topic.error_code])
        for topic in answer.topics:
            _check(topic.error_code, f"topic {topic.name}", topic.error_message)

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics with all their records."""
        topic_names = list(names)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in topic_names], timeout_ms=self._timeout_ms
        )
        connection = await self._cluster.any_connection()
        if connection.version(request.message_info.api_key) < _NAMED_DELETE:  # type: ignore[attr-defined]
            request = DeleteTopicsRequest(topic_names=topic_names, timeout_ms=self._timeout_ms)
        answer = await self._cluster.ask_controller(request)
        for topic in answer.responses:
            _check(topic.error_code, f"topic {topic.name}", topic.error_message)

    async def create_partitions(self, counts: Mapping[str, int]) -> None:
        """Add partitions: topic → new total."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()],
            timeout_ms=self._timeout_ms,
            validate_only=False,
        )
        answer = await self._cluster.ask_controller(request)
        for topic in answer.results:
            _check(topic.error_code, f"topic {topic.name}", topic.error_message)

    async def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """Return topics with their partitions (default: all topics)."""
        await self._cluster.refresh(every_topic=True)
        topics = self._cluster.metadata.topics
        if names is None:
            return dict(topics)
        topic_names = list(names)
        for name in topic_names:
            if name not in topics:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
        return {name: topics[name] for name in topic_names}

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """Return all topic names, internal ones only on request."""
        topics = await self.describe_topics()
        return sorted(name for name, topic in topics.items() if internal or not topic.internal)

    async def list_offsets(self, partitions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return offsets by timestamp (-1 end, -2 beginning); partitions without one are left out."""
        await self._cluster.ensure_topics({partition.topic for partition in partitions})
        result: dict[TopicPartition, int] = {}
        for leader, chosen in self._by_leader(partitions).items():
            topics: dict[str, ListOffsetsTopic] = {}
            for partition in chosen:
                topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic, partitions=[]))
                topic.partitions.append(
                    ListOffsetsPartition(partition_index=partition.partition, timestamp=partitions[partition])
                )
            request = ListOffsetsRequest(replica_id=-1, topics=list(topics.values()))
            answer = await self._cluster.ask_node(leader, request)
            for topic_answer in answer.topics:
                for entry in topic_answer.partitions:
                    _check(entry.error_code, f"{topic_answer.name}-{entry.partition_index}")
                    if entry.offset >= 0:
                        result[TopicPartition(topic_answer.name, entry.partition_index)] = entry.offset
        return result

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete records below these offsets (-1: all); return the new first offsets."""
        await self._cluster.ensure_topics({partition.topic for partition in before})
        result: dict[TopicPartition, int] = {}
        for leader, chosen in self._by_leader(before).items():
            topics: dict[str, DeleteRecordsTopic] = {}
            for partition in chosen:
                topic = topics.setdefault(partition.topic, DeleteRecordsTopic(name=partition.topic, partitions=[]))
                topic.partitions.append(
                    DeleteRecordsPartition(partition_index=partition.partition, offset=before[partition])
                )
            request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=self._timeout_ms)
            answer = await self._cluster.ask_node(leader, request)
            for topic_answer in answer.topics:
                for entry in topic_answer.partitions:
                    _check(entry.error_code, f"{topic_answer.name}-{entry.partition_index}")
                    result[TopicPartition(topic_answer.name, entry.partition_index)] = entry.low_watermark
        return result

    # Settings

    async def describe_configs(self, name: str, *, kind: int = TOPIC) -> dict[str, ConfigValue]:
        """Return all settings of a topic, or a broker (id as text, kind=BROKER)."""
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)],
            include_documentation=True,
        )
        answer = await (
            self._cluster.ask_node(int(name), request) if kind == BROKER else self._cluster.ask_any(request)
        )
        (result,) = answer.results
        _check(result.error_code, name, result.error_message)
        return {
            config.name: ConfigValue(
                config.name,
                config.value,
                config.config_source != _OF_TOPIC if kind == TOPIC else config.config_source == _DEFAULT,
                config.read_only,
                config.documentation,
            )
            for config in result.configs
        }

    async def alter_configs(self, name: str, changes: Mapping[str, str | None], *, kind: int = TOPIC) -> None:
        """Change settings of a topic or a running broker (id as text, kind=BROKER).

        None resets a setting to its default. An empty broker name is the default of all brokers.
        """
        resource = AlterResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                AlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
                for name, value in changes.items()
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        of_broker = kind == BROKER and name
        answer = await (
            self._cluster.ask_node(int(name), request) if of_broker else self._cluster.ask_controller(request)
        )
        what = "topic" if kind == TOPIC else "broker"
        for entry in answer.responses:
            _check(entry.error_code, f"{what} {entry.resource_name}", entry.error_message)


def _check(error_code: int, what: str, text: str | None = None) -> None:
    code = error_for(error_code)
    if code is not ErrorCode.NONE:
        raise BrokerError(code, what, text)
