"""The headers in front of every request and response.

What lives here: their two classes. Which header version an API version uses is in `apis`. Version 2 of the request header
and version 1 of the response header are flexible; the client id keeps its old encoding in all of them (KIP-482).
"""

from typing import Annotated

from busway_protocol.schema import message
from busway_protocol.types import Int16, Int32, NullableStr, not_flexible, since


@message(direction="header", versions=(1, 2), flexible=2)
class RequestHeader:
    """Which API, in which version, and the number that the response will carry."""

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: Annotated[NullableStr, since(1), not_flexible] = ""


@message(direction="header", versions=(0, 1), flexible=1)
class ResponseHeader:
    """The number of the request that is answered."""

    correlation_id: Int32
