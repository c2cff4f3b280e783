"""Principals as brokers write them into requests that they forward.

Here: the class, with its bytes.
Not here: what a principal may do.
"""

from busway_protocol.compile import decode, encode
from busway_protocol.errors import ProtocolError
from busway_protocol.schema import message
from busway_protocol.types import Bool, Str

_VERSION_BYTES = 2


@message(versions=(0, 0), flexible=0)
class DefaultPrincipalData:
    """A principal, of Kafka's DefaultKafkaPrincipalBuilder."""

    type: Str
    name: Str
    token_authenticated: Bool


def principal_bytes(principal: DefaultPrincipalData) -> bytes:
    """Encode a principal behind its version."""
    return (0).to_bytes(_VERSION_BYTES, "big") + encode(principal, 0)


def principal_from(content: bytes) -> DefaultPrincipalData:
    """Decode a principal. ProtocolError: its version is unknown, or it is damaged."""
    version = int.from_bytes(content[:_VERSION_BYTES], "big", signed=True)
    if len(content) < _VERSION_BYTES or version != 0:
        raise ProtocolError(f"a principal of {len(content)} bytes has no known version")
    return decode(DefaultPrincipalData, 0, content, _VERSION_BYTES)
