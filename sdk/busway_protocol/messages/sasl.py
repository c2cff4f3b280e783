"""Choice of the authentication mechanism.

Layouts and field names as in Kafka 4.3.1.
"""

from busway_protocol.schema import message
from busway_protocol.types import Int16, Str


@message(api_key=17, direction="request", versions=(0, 1))
class SaslHandshakeRequest:
    mechanism: Str


@message(api_key=17, direction="response", versions=(0, 1))
class SaslHandshakeResponse:
    error_code: Int16
    mechanisms: list[Str]
