"""AlterConfigs (key 33, versions 0-2): replace all settings of topics.

Versions: 2 is flexible.
Behaviour: what the request does not name goes back to its default; old clients still use this.
*Not supported*: settings of brokers, which are read from the properties file at start.
"""

from busway_bus.controller.configs import Operation, replace_all
from busway_bus.handlers.config_entries import alter_each
from busway_bus.handlers.context import RequestContext
from busway_bus.kernel.decision import Decision
from busway_bus.metadata.image import ClusterImage
from busway_protocol.apis import ApiKey
from busway_protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

API = ApiKey.ALTER_CONFIGS
VERSIONS = (0, 2)


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Replace the settings of each resource."""
    responses = await alter_each(
        request.resources,
        _changes,
        _replace,
        AlterConfigsResourceResponse,
        context.node,
        validate_only=request.validate_only,
    )
    return AlterConfigsResponse(responses=responses)


def _changes(resource: AlterConfigsResource) -> list[tuple[str, int, str | None]]:
    return [(one.name, Operation.SET, one.value) for one in resource.configs]


def _replace(image: ClusterImage, topic: str, changes: list[tuple[str, int, str | None]]) -> Decision[None]:
    return replace_all(image, topic, {name: value or "" for name, _, value in changes})
