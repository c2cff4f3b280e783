"""ListConfigResources (key 74, versions 0-1): list resources with settings (KIP-1142).

Versions: 0 requests client metrics alone (KIP-714), 1 any type.
Behaviour: every topic, every broker and every group with settings of its own; an unknown type is UNSUPPORTED_VERSION,
as in Kafka.
*Not supported*: settings of client metrics and broker loggers; there are none to list.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.configs import ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse

API = ApiKey.LIST_CONFIG_RESOURCES
VERSIONS = (0, 1)
NEEDS = (Access(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER),)
TYPES_SINCE = 1
LOGGER, CLIENT_METRICS = 8, 16
TYPES = frozenset({TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER, CLIENT_METRICS, GROUP_RESOURCE})


def handle(request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
    types = set(request.resource_types) or TYPES
    if context.api_version < TYPES_SINCE:
        types = {CLIENT_METRICS}
    if not types <= TYPES:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    resources = []
    if BROKER_RESOURCE in types:
        resources += [
            ConfigResource(resource_name=str(node_id), resource_type=BROKER_RESOURCE)
            for node_id in context.node.image.brokers
        ]
    if TOPIC_RESOURCE in types:
        resources += [
            ConfigResource(resource_name=name, resource_type=TOPIC_RESOURCE) for name in context.node.image.topics
        ]
    if GROUP_RESOURCE in types:
        resources += [
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, name in context.node.image.configs
            if kind == GROUP_RESOURCE
        ]
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=resources)
