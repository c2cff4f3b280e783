"""Clients' requests on their way to the active controller.

Here: the envelope with the client's principal and address, as Kafka's `ForwardingManager`.
Not here: which requests (`handlers.common.forwarded`), the connection (`channels`).
"""

from ipaddress import ip_address
from typing import Final

from busway_bus.handlers.common.context import CloseConnection, RequestContext
from busway_bus.kernel.node_channels import ControllerChannel
from busway_bus.kernel.principal import Principal
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.forwarding import EnvelopeRequest, EnvelopeResponse
from busway_protocol.principals import DefaultPrincipalData, principal_bytes

LOOPBACK: Final = bytes((127, 0, 0, 1))


class Forwarder:
    """A `handlers.common.context.Forwarding`."""

    def __init__(self, channel: ControllerChannel) -> None:
        self._channel = channel

    async def forward(self, frame: bytes, context: RequestContext) -> tuple[bytes, int]:
        """See `handlers.common.context.Forwarding`."""
        attempts = 0

        def sending() -> None:
            nonlocal attempts
            attempts += 1

        answer: EnvelopeResponse = await self._channel.send(
            envelope(frame, context.principal, _address(context.client_host)), sending=sending
        )
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            raise CloseConnection("the active controller does not support this version of the request")
        if answer.error_code or answer.response_data is None:
            # An error of the envelope is one between the nodes, which a client does not expect.
            text = f"the active controller refused the forwarded request: {ErrorCode(answer.error_code).name}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        return answer.response_data, attempts


def envelope(frame: bytes, principal: Principal, address: bytes) -> EnvelopeRequest:
    """Wrap a request with its header. `address`: 4 or 16 bytes."""
    return EnvelopeRequest(
        request_data=frame,
        request_principal=principal_bytes(
            DefaultPrincipalData(type=principal.type, name=principal.name, token_authenticated=False)
        ),
        client_host_address=address,
    )


def _address(host: str) -> bytes:
    try:
        return ip_address(host).packed
    except ValueError:  # a simulated host
        return LOOPBACK
