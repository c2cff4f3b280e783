"""ApiVersions (key 18, versions 0-4) of a controller: the APIs of its listeners.

Versions: as of a broker's.
Behaviour: computed from the list of handlers; features are those of this controller's image.
"""

from collections.abc import Sequence
from typing import Final

from busway_bus.handlers.api_versions import NAMED_SINCE, ZERO_LEVEL_SINCE, is_named
from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.for_controllers.services import services
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

_served: Final[list[ApiVersion]] = []


def advertise(served: Sequence[tuple[int, int, int]]) -> None:
    """Set every handler's (key, lowest, highest version); called once."""
    _served[:] = [
        ApiVersion(api_key=key, min_version=lowest, max_version=highest) for key, lowest, highest in sorted(served)
    ]


def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.api_version >= NAMED_SINCE and not is_named(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    metadata = services(context).metadata
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=_served,
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in SUPPORTED.items()
            if lowest or context.api_version >= ZERO_LEVEL_SINCE
        ],
        finalized_features_epoch=metadata.image_offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in metadata.image.features.items()
        ],
    )
