"""Shared parts of requests and responses: schemas, query flags, Confluent's shapes.

Here: what all resources share.
Not here: resources, reading bodies (`reading`).
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from busway_registry.domain import contracts
from busway_registry.domain.errors import RegistryError, invalid_subject
from busway_registry.domain.schemas import AVRO, Reference, SchemaRequest
from busway_registry.domain.subjects import LATEST, MAX_VERSION, check_subject, parse_number
from busway_registry.http.reading import MEDIA_TYPE, OFFERED, fields
from busway_registry.service import Registry
from busway_registry.store.interface import Deleted, Part, Registered, StoredSchema

_ITEMS: Final = 2_000
"""Items of a list encoded at a time."""
_HEADERS: Final = {"Cache-Control": "no-cache, no-store, must-revalidate", "X-XSS-Protection": "1; mode=block"}
Item = TypeVar("Item")


def registry(request: Request) -> Registry:
    served: Registry = request.app.state.registry
    return served


def subject(request: Request) -> str:
    """Return the subject in the path; raises 42208, invalid."""
    try:
        name = unquote(request.path_params["subject"], errors="strict")
    except UnicodeDecodeError:
        raise invalid_subject(request.path_params["subject"][:40], "it is not UTF-8") from None
    return check_subject(name)


def flag(request: Request, name: str, *, default: bool = False) -> bool:
    """Return a boolean of the query, in any case: Python writes `True`."""
    text = request.query_params.get(name)
    return default if text is None else text.lower() == "true"


def page(request: Request, most: int | None = None) -> Part:
    """Return the part of a list by `offset` and `limit`.

    A missing, non-positive or too large limit means `most`, the largest, like Confluent's.

    Raises:
        RegistryError: 404, not a number.
    """
    offset, limit = max(_number(request, "offset", 0), 0), _number(request, "limit", -1)
    if limit <= 0 or (most is not None and limit > most):
        return Part(offset=offset, limit=most)
    return Part(offset=offset, limit=limit)


def deleted(request: Request) -> Deleted:
    if flag(request, "deletedOnly"):
        return Deleted.ALONE
    return Deleted.INCLUDED if flag(request, "deleted") else Deleted.LEFT_OUT


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    number = parse_number(text.removeprefix("-"))
    if number is None:
        raise RegistryError(404, f"The query parameter {name} is a number, not '{text[:40]}'")
    return -number if text.startswith("-") else number


async def schema_request(request: Request) -> SchemaRequest:
    """Return the schema in the body.

    Raises:
        RegistryError: as `fields`; 400 a field of another type; 42201 no schema; 42210 bad rules.
    """
    given = await fields(request, "schema", "schemaType", "references", "metadata", "ruleSet", "version", "id")
    text = "" if given.get("schema") is None else given["schema"]
    if not isinstance(text, str):
        raise RegistryError(400, "The field schema is the schema as a string")
    references = [] if given.get("references") is None else given["references"]
    if not isinstance(references, list):
        raise RegistryError(400, "The field references is an array of objects with name, subject and version")
    return SchemaRequest(
        text=text,
        schema_type=str(given.get("schemaType") or AVRO),
        references=tuple(_reference(reference) for reference in references),
        metadata=contracts.metadata(given.get("metadata")),
        rule_set=contracts.rule_set(given.get("ruleSet")),
        version=_positive(given, "version"),
        id=_positive(given, "id"),
    )


def _reference(given: Any) -> Reference:
    match given:
        case {"name": str(name), "subject": str(subject_name), "version": int(version)} if (
            not isinstance(version, bool) and LATEST <= version <= MAX_VERSION
        ):
            return Reference(name=name, subject=check_subject(subject_name), version=version)
    raise RegistryError(400, "A reference has a name, a subject and a version (a number, -1 for the latest)")


def _positive(given: Mapping[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not LATEST <= value <= MAX_VERSION:
        raise RegistryError(400, f"The field {name} is a number from 1 to 2^31-1")
    return value if value > 0 else None


def answer(request: Request, content: Any, status: int = 200) -> Response:
    """Respond with JSON in the client's preferred media type."""
    return text_answer(request, json.dumps(content, ensure_ascii=False, separators=(",", ":")), status)


def long_answer(request: Request, items: Sequence[Item], shape: Callable[[Item], Any] = lambda item: item) -> Response:
    """Respond with a list of any length; other tasks run between its parts."""
    if len(items) <= _ITEMS:
        return answer(request, [shape(item) for item in items])

    async def parts() -> AsyncIterator[list[Any]]:
        for start in range(0, len(items), _ITEMS):
            yield [shape(item) for item in items[start : start + _ITEMS]]

    return _streamed(request, parts())


def schemas_answer(request: Request, versions: AsyncIterator[Registered]) -> Response:
    """Stream versions, as a long list would not fit into memory."""

    async def parts() -> AsyncIterator[list[Any]]:
        async for version in versions:
            yield [version_fields(version)]

    return _streamed(request, parts())


class _Stream(StreamingResponse):
    """Avoids starlette's task group, whose import of anyio blocks the event loop."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.stream_response(send)


def _streamed(request: Request, parts: AsyncIterator[list[Any]]) -> Response:
    async def text() -> AsyncIterator[str]:
        before = "["
        async for part in parts:
            yield before + json.dumps(part, ensure_ascii=False, separators=(",", ":"))[1:-1]
            before = ","
            await asyncio.sleep(0)  # sending may complete without suspending: give other tasks a turn
        yield "]" if before == "," else "[]"

    return _Stream(text(), headers=_HEADERS, media_type=_kind(request))


def _kind(request: Request) -> str:
    accepted = request.headers.get("accept", "*/*").lower()
    return next((offered for offered in OFFERED if offered in accepted), MEDIA_TYPE)


def text_answer(request: Request, text: str, status: int = 200) -> Response:
    """Respond with JSON text in the client's preferred media type."""
    return Response(text.encode(errors="replace"), status, _HEADERS, _kind(request))


def filled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Omit empty fields, like Confluent."""
    return {name: value for name, value in values.items() if value is not None and value not in ({}, [], "")}


def schema_fields(stored: StoredSchema) -> dict[str, Any]:
    artifact = stored.artifact
    return {
        "schemaType": artifact.schema_type,
        "references": [
            {"name": reference.name, "subject": reference.subject, "version": reference.version}
            for reference in artifact.references
        ],
        "metadata": artifact.metadata,
        "ruleSet": artifact.rule_set,
        "schema": artifact.text,
    }


def version_fields(registered: Registered) -> dict[str, Any]:
    return filled(
        {
            "subject": registered.version.subject,
            "version": registered.version.version,
            "id": registered.schema.id,
            "guid": str(registered.schema.artifact.guid),
            **schema_fields(registered.schema),
            "ts": registered.version.timestamp_ms,
            "deleted": registered.version.deleted or None,
        }
    )
