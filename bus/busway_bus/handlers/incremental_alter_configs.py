"""IncrementalAlterConfigs (key 44, versions 0-1): change single settings of topics (KIP-339).

Versions: 1 is flexible.
Behaviour: set, delete, append to a list, take from a list; a resource is changed whole or not at all.
*Not supported*: settings of brokers, which are read from the properties file at start.
"""

from busway_bus.controller.configs import change
from busway_bus.handlers.config_entries import alter_topic
from busway_bus.handlers.context import RequestContext
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from busway_protocol.messages.configs import (
    IncrementalAlterConfigsResponseAlterConfigsResourceResponse as ResourceResponse,
)

API = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS = (0, 1)


async def handle(request: IncrementalAlterConfigsRequest, context: RequestContext) -> IncrementalAlterConfigsResponse:
    """Change each resource."""
    responses = []
    for resource in request.resources:
        operations = [(config.name, config.config_operation, config.value) for config in resource.configs]
        name = resource.resource_name
        code, text = ErrorCode.NONE, None
        try:
            await alter_topic(
                context.node,
                resource.resource_type,
                name,
                lambda image, name=name, operations=operations: change(image, name, operations),  # type: ignore[misc]
                validate_only=request.validate_only,
            )
        except KafkaError as problem:
            code, text = problem.code, problem.message
        responses.append(
            ResourceResponse(
                error_code=code, error_message=text, resource_type=resource.resource_type, resource_name=name
            )
        )
    return IncrementalAlterConfigsResponse(responses=responses)
