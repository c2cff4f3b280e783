"""Choosing how to authenticate.

Messages: SaslHandshake. Layouts as in Kafka 4.3.1; the fields keep Kafka's names.
"""

from busway_protocol.schema import message
from busway_protocol.types import Int16, Str


@message(api_key=17, direction="request", versions=(0, 1))
class SaslHandshakeRequest:
    """Names the mechanism that the client wants to use."""

    mechanism: Str


@message(api_key=17, direction="response", versions=(0, 1))
class SaslHandshakeResponse:
    """The mechanisms that the broker offers."""

    error_code: Int16
    mechanisms: list[Str]
