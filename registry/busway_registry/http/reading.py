"""Reading request bodies within limits.

Here: limits, media types, JSON. Only requested fields of a body become objects, up to a limit: a megabyte of `[],`
makes a hundred megabytes of objects and a second of the event loop.
Not here: the meaning of fields (`bodies`).
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from busway_registry.domain.errors import RegistryError

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
OFFERED: Final = (MEDIA_TYPE, "application/vnd.schemaregistry+json", "application/json")
_TAKEN: Final = frozenset({*OFFERED, "application/octet-stream"})
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_FIELD_BYTES: Final = 256 * 1024
"""Limit of each field except the schema: references, metadata, rules."""
_HELD_BYTES: Final = 64 * 1024 * 1024
"""Limit of all large bodies, from first byte to response."""
_LARGE_BYTES: Final = 64 * 1024
"""Smaller bodies are not counted, so that small requests always pass."""
_HOLD: Final = "busway_registry.hold"
_BOM: Final = b"\xef\xbb\xbf"


class Holding:
    """Counts bytes held by an application's requests until they are answered."""

    def __init__(self, app: ASGIApp, most_bytes: int = _HELD_BYTES) -> None:
        self._app = app
        self._left = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hold = _Hold(self)
        try:
            await self._app({**scope, _HOLD: hold}, receive, send)
        finally:
            self._left += hold.bytes

    def take(self, count: int) -> None:
        """Count more bytes; raises 503, over the limit."""
        if count > self._left:
            raise RegistryError(503, "Too many large requests are under way; try again later")
        self._left -= count


class _Hold:
    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self.bytes = 0

    def is_now(self, size: int) -> None:
        if size > _LARGE_BYTES:
            self._holding.take(size - self.bytes)
            self.bytes = size


async def fields(request: Request, *names: str) -> Mapping[str, Any]:
    """Return named fields of the body, a JSON object; skip others, as newer clients send more.

    Raises:
        RegistryError: 415 another media type; 413 body or field too large; 400 not a JSON object; 422 empty; 503 too
            many large bodies.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and kind not in _TAKEN:
        raise RegistryError(415, f"The media type {kind[:80]} is not taken; send {MEDIA_TYPE}")
    raw = bytearray()
    hold: _Hold = request.scope[_HOLD]
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MAX_BODY_BYTES:
            raise RegistryError(413, f"The request is larger than {MAX_BODY_BYTES} bytes")
        hold.is_now(len(raw))
    if not raw or raw.isspace():
        raise RegistryError(422, "The request has no body; a JSON object is expected")
    try:
        cut = _decoder(names).decode(raw.removeprefix(_BOM) if raw.startswith(_BOM) else raw)
        return {name: _value(name, part) for name in names if (part := getattr(cut, name))}
    except msgspec.ValidationError as problem:
        raise RegistryError(400, f"The body is no JSON object: {problem}") from None
    except (ValueError, RecursionError) as problem:
        raise RegistryError(400, f"The body is not JSON: {problem}") from None


@cache
def _decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    missing = msgspec.Raw()
    return msgspec.json.Decoder(msgspec.defstruct("Body", [(name, msgspec.Raw, missing) for name in names]))


def _value(name: str, part: msgspec.Raw) -> Any:
    raw = memoryview(part)
    if name == "schema" and bytes(raw[:1]) == b'"':
        return msgspec.json.decode(raw, type=str)
    if len(raw) > MAX_FIELD_BYTES:
        raise RegistryError(413, f"The field {name} is larger than {MAX_FIELD_BYTES} bytes")
    value = json.loads(bytes(raw))
    json.dumps(value, ensure_ascii=False).encode()  # raises UnicodeEncodeError, a ValueError, for a lone surrogate
    return value
