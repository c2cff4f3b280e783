"""SaslHandshake (key 17, versions 0-1): choose a mechanism.

Versions: 1 is followed by SaslAuthenticate (KIP-152).
Behaviour: no mechanism is enabled, as the response says.
*Not supported*: authentication.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse

API = ApiKey.SASL_HANDSHAKE
VERSIONS = (0, 1)
NEEDS = ()


def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=[])
