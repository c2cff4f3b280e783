"""Administration of share groups: members, start offsets, settings (KIP-932).

Here: `ShareGroupsAdmin`, a base of `Admin`.
Not here: consumer groups (`groups`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from busway.cluster.client import ClusterClient
from busway.cluster.coordinator import ask_coordinator
from busway.errors import BrokerError
from busway.types import TopicPartition
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.configs import IncrementalAlterConfigsRequest
from busway_protocol.messages.configs import IncrementalAlterConfigsRequestAlterableConfig as AlterableConfig
from busway_protocol.messages.configs import IncrementalAlterConfigsRequestAlterConfigsResource as AlterResource
from busway_protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    ShareGroupDescribeRequest,
)

GROUP: Final = 32
SHARE: Final = "share"
_SET, _DELETE = 0, 1


@dataclass(frozen=True, slots=True)
class ShareGroupMember:
    """A member with its topics and partitions, which several members may share."""

    member_id: str
    client_id: str
    host: str
    epoch: int
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A share group with its members."""

    group_id: str
    state: str
    epoch: int
    assignor: str
    members: tuple[ShareGroupMember, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """Progress of a share group in a partition.

    Attributes:
        start_offset: everything before it was accepted or rejected.
        lag: unfinished records from there on; None if the broker does not report it.
    """

    start_offset: int
    lag: int | None


class ShareGroupsAdmin:
    _cluster: ClusterClient

    async def _ask_coordinator(self, group_id: str, message: Any, *, at_most: int | None = None) -> Any:
        return await ask_coordinator(self._cluster, group_id, message, at_most=at_most)

    async def describe_share_group(self, group_id: str) -> ShareGroupDescription:
        """Return a share group with its members."""
        request = ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
        answer = await self._ask_coordinator(group_id, request)
        (group,) = answer.groups
        _check(group.error_code, f"share group {group_id}", group.error_message)
        return ShareGroupDescription(
            group_id,
            group.group_state,
            group.group_epoch,
            group.assignor_name,
            tuple(
                ShareGroupMember(
                    member.member_id,
                    member.client_id,
                    member.client_host,
                    member.member_epoch,
                    tuple(member.subscribed_topic_names),
                    tuple(
                        TopicPartition(topic.topic_name, partition_index)
                        for topic in member.assignment.topic_partitions
                        for partition_index in topic.partitions
                    ),
                )
                for member in group.members
            ),
        )

    async def list_share_group_offsets(self, group_id: str) -> dict[TopicPartition, ShareGroupOffset]:
        """Return the progress in each initialized partition."""
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
        answer = await self._ask_coordinator(group_id, DescribeShareGroupOffsetsRequest(groups=[asked]))
        (group,) = answer.groups
        _check(group.error_code, f"share group {group_id}", group.error_message)
        result: dict[TopicPartition, ShareGroupOffset] = {}
        for topic in group.topics:
            for entry in topic.partitions:
                _check(entry.error_code, f"{topic.topic_name}-{entry.partition_index}", entry.error_message)
                if entry.start_offset >= 0:
                    partition = TopicPartition(topic.topic_name, entry.partition_index)
                    result[partition] = ShareGroupOffset(entry.start_offset, entry.lag if entry.lag >= 0 else None)
        return result

    async def alter_share_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the start offsets of a share group without members."""
        topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
        for partition, offset in offsets.items():
            topic = topics.setdefault(
                partition.topic, AlterShareGroupOffsetsRequestTopic(topic_name=partition.topic, partitions=[])
            )
            topic.partitions.append(
                AlterShareGroupOffsetsRequestPartition(partition_index=partition.partition, start_offset=offset)
            )
        request = AlterShareGroupOffsetsRequest(group_id=group_id, topics=list(topics.values()))
        answer = await self._ask_coordinator(group_id, request)
        _check(answer.error_code, f"share group {group_id}", answer.error_message)
        for topic_answer in answer.responses:
            for entry in topic_answer.partitions:
                where = f"{topic_answer.topic_name}-{entry.partition_index} of share group {group_id}"
                _check(entry.error_code, where, entry.error_message)

    async def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Delete the state of topics in a share group without members."""
        request = DeleteShareGroupOffsetsRequest(
            group_id=group_id, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
        )
        answer = await self._ask_coordinator(group_id, request)
        _check(answer.error_code, f"share group {group_id}", answer.error_message)
        for topic in answer.responses:
            _check(topic.error_code, f"{topic.topic_name} of share group {group_id}", topic.error_message)

    async def alter_group_configs(self, group_id: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a group, such as share.auto.offset.reset; None resets to the default."""
        resource = AlterResource(
            resource_type=GROUP,
            resource_name=group_id,
            configs=[
                AlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
                for name, value in changes.items()
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await self._cluster.ask_controller(request)
        for entry in answer.responses:
            _check(entry.error_code, f"group {entry.resource_name}", entry.error_message)


def _check(error_code: int, what: str, text: str | None = None) -> None:
    code = error_for(error_code)
    if code is not ErrorCode.NONE:
        raise BrokerError(code, what, text)
