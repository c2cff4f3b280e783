"""DescribeConfigs (key 32, versions 1-4): every setting of topics, groups and brokers.

Versions: 1 has synonyms and sources (KIP-226), 3 types and documentation (KIP-569), 4 is flexible.
Behaviour: settings at their defaults are listed too; a list of keys narrows the response. A broker without a name means
the cluster's defaults. Static broker settings are read-only. A repeated resource is described once, with the settings
of its first mention. The group key `busway.rebalances`, if requested by name, returns its last rebalances as a JSON
array, from the group's coordinator.
*Not supported*: broker loggers and client metrics, which answer INVALID_REQUEST.
"""

from collections.abc import Awaitable, Generator, Hashable
from typing import Final

from busway_bus.controller.topics import check_name
from busway_bus.groups.group import GroupKind
from busway_bus.handlers.common.config_entries import (
    ConfigEntry,
    broker_entries,
    check_broker,
    cluster_entries,
    group_entries,
    in_force,
    not_served,
    topic_entries,
)
from busway_bus.handlers.common.context import Large, RequestContext, finished
from busway_bus.kernel.topic_configs import fixed_configs
from busway_bus.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

API = ApiKey.DESCRIBE_CONFIGS
VERSIONS = (1, 4)
NEEDS = (
    Access(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER),
    Access(Operation.DESCRIBE_CONFIGS, Resource.TOPIC),
    Access(Operation.DESCRIBE_CONFIGS, Resource.GROUP),
)

REBALANCES: Final = "busway.rebalances"
_DYNAMIC_GROUP: Final = 8
"""The source of a group's setting (KIP-1043)."""
_STRING: Final = 2

DESCRIBED_AT_ONCE: Final = 4
"""Resources between two yields. A broker takes some ms."""


def handle(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse | Awaitable[Large]:
    steps = _response(request, context)
    return context.in_slices(steps) if len(request.resources) > DESCRIBED_AT_ONCE else finished(steps)


def _response(
    request: DescribeConfigsRequest, context: RequestContext
) -> Generator[None, None, DescribeConfigsResponse]:
    """Describe the resources; yield after each. Equal settings share one list."""
    described: dict[Hashable, list[DescribeConfigsResourceResult]] = {}
    results: dict[tuple[int, str], DescribeConfigsResult] = {}
    for resource in request.resources:
        name = (resource.resource_type, resource.resource_name)
        if name in results:
            continue
        result = results[name] = DescribeConfigsResult(
            error_code=ErrorCode.NONE,
            error_message="",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
        try:
            if resource.resource_type == GROUP_RESOURCE and resource.configuration_keys == [REBALANCES]:
                result.configs = [_rebalances(name[1], context)]
                yield
                continue
            settings = _settings(resource, context)
        except KafkaError as problem:
            result.error_code, result.error_message = problem.code, problem.message
        else:
            keys = frozenset(resource.configuration_keys or ())
            if (settings, keys) not in described:
                described[settings, keys] = [
                    _result(entry, request) for entry in _entries(resource, context) if not keys or entry.name in keys
                ]
            result.configs = described[settings, keys]
        yield
    return DescribeConfigsResponse(results=list(results.values()))


def _rebalances(group_id: str, context: RequestContext) -> DescribeConfigsResourceResult:
    """Describe a group's last rebalances, only if requested.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND; INVALID_GROUP_ID for a share group; NOT_COORDINATOR and similar errors, to retry
            at another broker or later.
    """
    if context.on_cluster_controller:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a controller coordinates no groups; ask a broker")
    groups = context.node.groups
    if (group := groups.group(group_id)) is not None and group.kind is GroupKind.SHARE:
        raise KafkaError(
            ErrorCode.INVALID_GROUP_ID,
            f"{group_id} is a share group, which is not balanced: its members share every partition",
        )
    text = groups.explanation(group_id)
    if text is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"nothing is known of a group {group_id}")
    return DescribeConfigsResourceResult(
        name=REBALANCES,
        value=text,
        read_only=True,
        config_source=_DYNAMIC_GROUP,
        is_sensitive=False,
        synonyms=[],
        config_type=_STRING,
        documentation=None,
    )


def _settings(resource: DescribeConfigsResource, context: RequestContext) -> Hashable:
    """Return a key that is equal for resources with equal settings.

    KafkaError: the resource does not exist, or has none.
    """
    node, name = context.node, resource.resource_name
    if resource.resource_type == TOPIC_RESOURCE:
        check_name(name)
        if name not in node.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return TOPIC_RESOURCE, frozenset(node.image.topic_configs(name).items()), frozenset(fixed_configs(name))
    if resource.resource_type == GROUP_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return GROUP_RESOURCE, frozenset(node.image.group_configs(name).items())
    if resource.resource_type == BROKER_RESOURCE:
        if name:
            check_broker(name, node.node_id, "Broker id", " or empty string")
        return BROKER_RESOURCE, bool(name)
    raise not_served(resource.resource_type)


def _entries(resource: DescribeConfigsResource, context: RequestContext) -> list[ConfigEntry]:
    node, name = context.node, resource.resource_name
    if resource.resource_type == TOPIC_RESOURCE:
        own = node.image.topic_configs(name)
        return in_force(topic_entries(node.config, own, fixed_configs(name)), node.image)
    if resource.resource_type == GROUP_RESOURCE:
        return in_force(group_entries(node.config, node.image.group_configs(name)), node.image)
    return broker_entries(node.config) if name else cluster_entries(node.config)


def _result(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )
