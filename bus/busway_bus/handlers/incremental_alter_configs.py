"""IncrementalAlterConfigs (key 44, versions 0-1): change single settings of topics, groups and brokers (KIP-339).

Behaviour: set, delete, append to a list, subtract from a list; a resource is changed whole or not at all. Of brokers
only dynamic settings (KIP-226): this broker's or, without a name, the cluster's default.
*Not supported*: broker loggers and client metrics, which answer INVALID_REQUEST.
"""

from busway_bus.controller.configs import Update
from busway_bus.handlers.common.config_entries import alter_each
from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from busway_protocol.messages.configs import IncrementalAlterConfigsRequestAlterConfigsResource as ConfigsResource
from busway_protocol.messages.configs import (
    IncrementalAlterConfigsResponseAlterConfigsResourceResponse as ResourceResponse,
)

API = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS = (0, 1)
NEEDS = (
    Access(Operation.ALTER_CONFIGS, Resource.CLUSTER),
    Access(Operation.ALTER_CONFIGS, Resource.TOPIC),
    Access(Operation.ALTER_CONFIGS, Resource.GROUP),
)


async def handle(request: IncrementalAlterConfigsRequest, context: RequestContext) -> IncrementalAlterConfigsResponse:
    responses = await alter_each(
        request.resources,
        _updates,
        ResourceResponse,
        context,
        incremental=True,
        validate_only=request.validate_only,
    )
    return IncrementalAlterConfigsResponse(responses=responses)


def _updates(resource: ConfigsResource) -> list[Update]:
    return [(config.name, config.config_operation, config.value) for config in resource.configs]
