"""Requests of clients that the active controller of a cluster handles.

Here: which these are, and passing them on in a node that is one of several.
Not here: the connection to the controller (`nodes.forwarding`), the controller's side (`for_controllers.envelope`).
"""

from collections.abc import Callable
from dataclasses import replace
from inspect import isawaitable
from typing import Any, Final, NamedTuple, TypeVar

from busway_bus.controller.controller import Command, ControllerRequestContext
from busway_bus.handlers.common.context import CloseConnection, Encoded, RequestContext
from busway_protocol.apis import ApiKey, api, response_header_version
from busway_protocol.compile import decode, decode_from
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.headers import ResponseHeader

R = TypeVar("R")
FORWARDED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
    }
)
"""Those that Kafka's `ApiKeys` calls forwardable, as far as they are served."""
_DONE_BEFORE: Final = {ApiKey.UNREGISTER_BROKER: ErrorCode.BROKER_ID_NOT_REGISTERED}
"""Errors of a repeated request whose earlier attempt was carried out, if this node knew the broker before. Kafka returns
them to the client."""
_READING: Final = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.LIST_PARTITION_REASSIGNMENTS})


class Forwarded(NamedTuple):
    """A decoded request with its frame, without the size."""

    frame: bytes
    request: Any


class _Refusing:
    """A controller that cannot be reached."""

    leader_id = -1

    def __init__(self, problem: KafkaError) -> None:
        self._problem = problem

    async def request(self, command: Command[R], context: ControllerRequestContext) -> R:
        raise self._problem


async def forward(
    key: int, handle: Callable[[Any, RequestContext], Any], forwarded: Forwarded, context: RequestContext
) -> Any:
    """Return the controller's response. If there is none, `handle` words the error as a response.

    A request whose outcome was lost with a controller's leadership is sent again; see `_DONE_BEFORE`.
    """
    assert context.node.forwarding is not None
    may_be_done = key in _DONE_BEFORE and forwarded.request.broker_id in context.node.image.brokers
    try:
        content, attempts = await context.node.forwarding.forward(forwarded.frame, context)
    except KafkaError as problem:
        return await _refusal(key, handle, forwarded.request, context, problem)
    _, position = decode_from(ResponseHeader, response_header_version(key, context.api_version), content, 0)
    if attempts > 1 and may_be_done:
        answer = decode(api(key).response, context.api_version, content, position)
        if answer.error_code == _DONE_BEFORE[ApiKey(key)]:
            return api(key).response(error_code=ErrorCode.NONE, error_message=None)
    return Encoded([content[position:]])


async def _refusal(
    key: int, handle: Callable[[Any, RequestContext], Any], request: Any, context: RequestContext, problem: KafkaError
) -> Any:
    if key in _READING:
        return api(key).response(error_code=problem.code, topics=[])
    node = replace(context.node, controller=_Refusing(problem))
    try:
        answer = handle(request, replace(context, node=node))
        return await answer if isawaitable(answer) else answer
    except KafkaError:
        raise CloseConnection(f"the request was not forwarded: {problem}") from None
