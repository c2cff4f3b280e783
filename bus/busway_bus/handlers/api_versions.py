"""ApiVersions (key 18, versions 0-4): what this broker speaks.

Versions: 3 is flexible and carries the client's software name (KIP-511), 4 allows features whose lowest level is 0. The answer's
header is always version 0. An unknown version is answered in version 0 (`server.dispatch`).
Behaviour: computed from the list of handlers; features are finalized only when they are served whole.
"""

import re
from collections.abc import Sequence
from typing import Final

from busway_bus.handlers.context import RequestContext
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

_advertised: list[ApiVersion] = []


def advertise(served: Sequence[tuple[int, int, int]]) -> None:
    """Take in (key, lowest, highest version) of every handler; the registry calls this once."""
    _advertised[:] = [
        ApiVersion(api_key=key, min_version=lowest, max_version=highest) for key, lowest, highest in sorted(served)
    ]


def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """The list, unless the client gives itself a name that is none."""
    names = (request.client_software_name, request.client_software_version)
    if context.api_version >= NAMED_SINCE and not all(_SOFTWARE.match(name) for name in names):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    lowest_told = 0 if context.api_version >= ZERO_LEVEL_SINCE else 1  # older clients cannot read a lowest level of 0
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=_advertised,
        supported_features=[
            SupportedFeatureKey(name=name, min_version=max(lowest, lowest_told), max_version=highest)
            for name, (lowest, highest) in SUPPORTED.items()
        ],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in context.node.image.features.items()
        ],
    )
