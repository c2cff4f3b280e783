"""Envelope (key 58, version 0): a broker forwards a client's request, with the client's principal (KIP-590).

Behaviour: the request is handled as if the client had sent it to this controller, and its response returned whole. The
error of the envelope itself is NOT_CONTROLLER unless this node leads until the end, UNSUPPORTED_VERSION for a request
that this controller cannot read, INVALID_REQUEST for one that is never forwarded or a damaged address, and
PRINCIPAL_DESERIALIZATION_FAILURE.
"""

import struct
from collections.abc import Mapping
from dataclasses import replace
from inspect import isawaitable
from ipaddress import ip_address
from typing import Any, Final, TypeVar, cast

from busway_bus.controller.controller import Command, Controller, ControllerRequestContext
from busway_bus.handlers.common.context import Large, NodeServices, RequestContext
from busway_bus.handlers.common.forwarded import FORWARDED
from busway_bus.handlers.for_controllers.services import services
from busway_bus.handlers.registry import Handler
from busway_bus.kernel.principal import Principal
from busway_bus.scheduling.off_loop import off_loop
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey, api, request_header_version, response_header_version
from busway_protocol.compile import decode, decode_from, encode
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.headers import RequestHeader, ResponseHeader
from busway_protocol.messages.forwarding import EnvelopeRequest, EnvelopeResponse
from busway_protocol.principals import principal_from

API = ApiKey.ENVELOPE
VERSIONS = (0, 0)
NEEDS = (Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),)
R = TypeVar("R")
_API_AND_VERSION: Final = struct.Struct(">hh")
_handlers: dict[int, Handler] = {}


def unpack_with(handlers: Mapping[int, Handler]) -> None:
    """Set this controller's handlers; called once."""
    _handlers.update({key: handler for key, handler in handlers.items() if key in FORWARDED})


async def handle(request: EnvelopeRequest, context: RequestContext) -> EnvelopeResponse:
    node = services(context)
    try:
        key, version, header, inner = _unpacked(request.request_data)
        host = _host(request.client_host_address)
        principal = _principal(request.request_principal)
    except KafkaError as problem:
        return EnvelopeResponse(error_code=problem.code)
    if not node.quorum.leading:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    controller = _Watched(node.controller)
    inner_context = RequestContext(
        api_version=version,
        client_id=header.client_id,
        client_host=host,
        advertised=context.advertised,
        peer=context.peer,
        node=cast("NodeServices", replace(node, controller=controller)),
        principal=principal,
    )
    try:
        answer = _handlers[key].handle(inner, inner_context)
        if isawaitable(answer):
            answer = await answer
    except KafkaError as problem:
        return EnvelopeResponse(error_code=problem.code)
    content = await _encoded(answer, version)
    if controller.lost:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    head = encode(ResponseHeader(correlation_id=header.correlation_id), response_header_version(key, version))
    return EnvelopeResponse(response_data=head + content, error_code=ErrorCode.NONE)


class _Watched:
    """A controller that notes whether a request failed because it does not lead any more."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.lost = False

    @property
    def leader_id(self) -> int:
        return self._controller.leader_id

    async def request(self, command: Command[R], context: ControllerRequestContext) -> R:
        try:
            return await self._controller.request(command, context)
        except KafkaError as problem:
            self.lost |= problem.code is ErrorCode.NOT_CONTROLLER
            raise


def _unpacked(content: bytes) -> tuple[int, int, RequestHeader, Any]:
    """Return API key, version, header and request.

    KafkaError: UNSUPPORTED_VERSION, INVALID_REQUEST.
    """
    if len(content) < _API_AND_VERSION.size:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    key, version = _API_AND_VERSION.unpack_from(content)
    if key not in FORWARDED:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    handler = _handlers.get(key)
    if handler is None or not handler.min_version <= version <= handler.max_version:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    try:
        header, position = decode_from(RequestHeader, request_header_version(key, version), content, 0)
        return key, version, header, decode(api(key).request, version, content, position)
    except (ProtocolError, struct.error, IndexError, UnicodeDecodeError):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION) from None


def _host(address: bytes) -> str:
    try:
        return str(ip_address(address))
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST) from None


def _principal(content: bytes | None) -> Principal:
    try:
        principal = principal_from(content or b"")
    except (ProtocolError, struct.error, IndexError, UnicodeDecodeError):
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from None
    return Principal(principal.type, principal.name)


async def _encoded(answer: Any, version: int) -> bytes:
    if not isinstance(answer, Large):
        return encode(answer, version)
    try:
        return await off_loop(lambda: encode(answer.response, version))
    finally:
        if answer.over is not None:
            answer.over()
