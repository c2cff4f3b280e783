"""ApiVersions (key 18, versions 0-4): the APIs and features of this broker, or of its controller's listeners.

Versions: 3 is flexible and has the client's software name (KIP-511), 4 allows features from level 0. The response's
header is always version 0. An unknown version gets a response in version 0 (`server.dispatch`).
Behaviour: computed from the list of handlers, without those of inactive features; features are finalized only when
wholly supported. Their epoch is the offset of their metadata, as in Kafka: a client keeps the newest levels.
"""

import re
from collections.abc import Container, Sequence
from typing import Final

from busway_bus.handlers.common.context import RequestContext
from busway_bus.metadata.features import SUPPORTED
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

API = ApiKey.API_VERSIONS
VERSIONS = (0, 4)
NEEDS = ()
NAMED_SINCE = 3
ZERO_LEVEL_SINCE = 4
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")

_advertised: list[tuple[ApiVersion, str]] = []
_on_controller_listeners: list[tuple[ApiVersion, str]] = []


def advertise(served: Sequence[tuple[int, int, int, str]], on_controller_listeners: Container[int]) -> None:
    """Set every handler's (key, lowest, highest version, feature); called once."""
    _advertised[:] = [
        (ApiVersion(api_key=key, min_version=lowest, max_version=highest), feature)
        for key, lowest, highest, feature in sorted(served)
    ]
    _on_controller_listeners[:] = [
        (version, feature) for version, feature in _advertised if version.api_key in on_controller_listeners
    ]


def is_named(request: ApiVersionsRequest) -> bool:
    """Whether the client's software name and version are valid."""
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.match(name) for name in names)


def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.api_version >= NAMED_SINCE and not is_named(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    allows_zero = context.api_version >= ZERO_LEVEL_SINCE  # older clients cannot read a lowest level of 0 (KAFKA-17492)
    levels = context.node.image.features
    advertised = _on_controller_listeners if context.on_controller_listener else _advertised
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[api for api, feature in advertised if not feature or levels.get(feature, 0)],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in SUPPORTED.items()
            if lowest or allows_zero
        ],
        finalized_features_epoch=context.node.metadata.image_offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in context.node.image.features.items()
        ],
    )
