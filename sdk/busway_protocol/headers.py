"""Headers of requests and responses.

Here: their classes.
Not here: the header version of an API version (`apis`). Request header 2 and response header 1 are flexible; the client
id keeps its old encoding in all of them (KIP-482).
"""

from typing import Annotated

from busway_protocol.schema import message
from busway_protocol.types import Int16, Int32, NullableStr, not_flexible, since


@message(direction="header", versions=(1, 2), flexible=2)
class RequestHeader:
    """API, version, and the correlation id of the response."""

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: Annotated[NullableStr, since(1), not_flexible] = ""


@message(direction="header", versions=(0, 1), flexible=1)
class ResponseHeader:
    """Correlation id of the request."""

    correlation_id: Int32
