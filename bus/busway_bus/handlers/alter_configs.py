"""AlterConfigs (key 33, versions 0-2): replace all settings of topics.

Versions: 2 is flexible.
Behaviour: what the request does not name goes back to its default; old clients still use this.
*Not supported*: settings of brokers, which are read from the properties file at start.
"""

from busway_bus.controller.configs import replace_all
from busway_bus.handlers.config_entries import alter_topic
from busway_bus.handlers.context import RequestContext
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse

API = ApiKey.ALTER_CONFIGS
VERSIONS = (0, 2)


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Replace the settings of each resource."""
    responses = []
    for resource in request.resources:
        wanted = {config.name: config.value for config in resource.configs}
        name = resource.resource_name
        code, text = ErrorCode.NONE, None
        try:
            await alter_topic(
                context.node,
                resource.resource_type,
                name,
                lambda image, name=name, wanted=wanted: replace_all(image, name, wanted),  # type: ignore[misc]
                validate_only=request.validate_only,
            )
        except KafkaError as problem:
            code, text = problem.code, problem.message
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code, error_message=text, resource_type=resource.resource_type, resource_name=name
            )
        )
    return AlterConfigsResponse(responses=responses)
