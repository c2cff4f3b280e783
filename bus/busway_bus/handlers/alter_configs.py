"""AlterConfigs (key 33, versions 0-2): replace all settings of topics, groups and brokers.

Behaviour: settings missing in the request return to their defaults; old clients still use this. Of brokers only dynamic
settings (KIP-226): this broker's or, without a name, the cluster's default.
*Not supported*: broker loggers and client metrics, which answer INVALID_REQUEST.
"""

from busway_bus.controller.configs import ConfigOperation, Update
from busway_bus.handlers.common.config_entries import alter_each
from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

API = ApiKey.ALTER_CONFIGS
VERSIONS = (0, 2)
NEEDS = (
    Access(Operation.ALTER_CONFIGS, Resource.CLUSTER),
    Access(Operation.ALTER_CONFIGS, Resource.TOPIC),
    Access(Operation.ALTER_CONFIGS, Resource.GROUP),
)


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    responses = await alter_each(
        request.resources,
        _updates,
        AlterConfigsResourceResponse,
        context,
        incremental=False,
        validate_only=request.validate_only,
    )
    return AlterConfigsResponse(responses=responses)


def _updates(resource: AlterConfigsResource) -> list[Update]:
    return [(config.name, ConfigOperation.SET, config.value) for config in resource.configs]
