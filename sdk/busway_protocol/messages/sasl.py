"""Authentication by SASL."""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message
from busway_protocol.types import Bytes, Int16, Int64, NullableStr, Str, ignorable, since


@message(api_key=17, direction="request", versions=(0, 1))
class SaslHandshakeRequest:
    mechanism: Str


@message(api_key=17, direction="response", versions=(0, 1))
class SaslHandshakeResponse:
    error_code: Int16
    mechanisms: list[Str]


@message(api_key=36, direction="request", versions=(0, 2), flexible=2)
class SaslAuthenticateRequest:
    """A message of the client's mechanism; left out of `repr`, as it may be a password."""

    auth_bytes: Bytes = field(repr=False)


@message(api_key=36, direction="response", versions=(0, 2), flexible=2)
class SaslAuthenticateResponse:
    """The broker's message, and for how long the authentication is valid (KIP-368); 0 is for ever."""

    error_code: Int16
    error_message: NullableStr
    auth_bytes: Bytes = field(repr=False)
    session_lifetime_ms: Annotated[Int64, since(1), ignorable] = 0
