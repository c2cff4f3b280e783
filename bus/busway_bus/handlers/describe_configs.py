"""DescribeConfigs (key 32, versions 1-4): every setting of topics and brokers.

Versions: 1 has synonyms and sources (KIP-226), 3 types and documentation (KIP-569), 4 is flexible.
Behaviour: settings left at their default are listed too; a list of keys narrows the answer. A broker without a name stands for the
defaults of the cluster. Settings of brokers are told as read-only, for here they are.
*Not supported*: broker loggers, groups and client metrics, which answer INVALID_REQUEST.
"""

from busway_bus.controller.topics import check_name
from busway_bus.handlers.config_entries import (
    ConfigEntry,
    broker_entries,
    check_broker,
    cluster_entries,
    topic_entries,
)
from busway_bus.handlers.context import RequestContext
from busway_bus.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
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


def handle(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    """Describe each resource."""
    results = []
    for resource in request.resources:
        try:
            entries = _entries(resource, context)
            code, text = ErrorCode.NONE, ""
        except KafkaError as problem:
            entries, code, text = [], problem.code, problem.message
        if resource.configuration_keys:
            entries = [entry for entry in entries if entry.name in resource.configuration_keys]
        results.append(
            DescribeConfigsResult(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[_result(entry, request) for entry in entries],
            )
        )
    return DescribeConfigsResponse(results=results)


def _entries(resource: DescribeConfigsResource, context: RequestContext) -> list[ConfigEntry]:
    node, name = context.node, resource.resource_name
    if resource.resource_type == TOPIC_RESOURCE:
        check_name(name)
        if name not in node.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return topic_entries(node.config, node.image.topic_configs(name))
    if resource.resource_type == BROKER_RESOURCE:
        if not name:
            return cluster_entries(node.config)
        check_broker(name, node.node_id, "Broker id", " or empty string")
        return broker_entries(node.config)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {resource.resource_type} have no settings here")


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
