"""SaslHandshake (key 17, versions 0-1): choosing a mechanism.

Versions: 1 goes on with SaslAuthenticate (KIP-152).
Behaviour: no mechanism is enabled, and the answer says so.
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
    """Refuse: there is nothing to choose from."""
    return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=[])
