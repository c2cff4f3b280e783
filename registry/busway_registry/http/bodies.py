"""Requests in, answers out: media types, JSON bodies, flags in queries, Confluent's shapes.

What lives here: what every resource shares. What does not: any one resource.
"""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from busway_registry.domain.errors import RegistryError
from busway_registry.domain.schemas import AVRO, Reference, SchemaRequest
from busway_registry.domain.subjects import LATEST, check_subject
from busway_registry.service import Registered, Registry
from busway_registry.store.interface import StoredSchema

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_OFFERED: Final = (MEDIA_TYPE, "application/vnd.schemaregistry+json", "application/json")
_TAKEN: Final = frozenset({*_OFFERED, "application/octet-stream"})
_HEADERS: Final = {"Cache-Control": "no-cache, no-store, must-revalidate", "X-XSS-Protection": "1; mode=block"}
MAX_BODY_BYTES: Final = 4 * 1024 * 1024


def registry(request: Request) -> Registry:
    """The use cases behind this application."""
    found: Registry = request.app.state.registry
    return found


def subject(request: Request) -> str:
    """The subject in the path.

    Raises:
        RegistryError: 42208; it is not a valid one.
    """
    return check_subject(unquote(request.path_params["subject"]))


def flag(request: Request, name: str, *, default: bool = False) -> bool:
    """A boolean of the query; any case, `True` as Python writes it included."""
    text = request.query_params.get(name)
    return default if text is None else text.lower() == "true"


def page(request: Request, found: list[Any]) -> list[Any]:
    """The part of a list that `offset` and `limit` ask for.

    Raises:
        RegistryError: 422; one of them is not a number.
    """
    offset, limit = _number(request, "offset", 0), _number(request, "limit", -1)
    return found[max(offset, 0) :] if limit < 0 else found[max(offset, 0) : max(offset, 0) + limit]


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise RegistryError(422, f"The query parameter {name} is a number, not '{text}'") from None


async def body(request: Request) -> Mapping[str, Any]:
    """The JSON object in the body.

    Raises:
        RegistryError: 415 another media type; 413 too large; 400 not JSON; 422 not an object.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and kind not in _TAKEN:
        raise RegistryError(415, f"The media type {kind} is not taken; send {MEDIA_TYPE}")
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MAX_BODY_BYTES:
            raise RegistryError(413, f"The request is larger than {MAX_BODY_BYTES} bytes")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as problem:
        raise RegistryError(400, f"The body is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise RegistryError(422, f"The body is a JSON {type(found).__name__}, an object is expected")
    return found


async def schema_request(request: Request) -> SchemaRequest:
    """The schema in the body; fields that are not known are passed over, as newer clients send more.

    Raises:
        RegistryError: as `body`; 422 a field is of another type.
    """
    found = await body(request)
    text = found.get("schema")
    if not isinstance(text, str):
        raise RegistryError(422, "The field schema is the schema as a string; it is missing or not a string")
    references = found.get("references") or []
    if not isinstance(references, list):
        raise RegistryError(422, "The field references is an array of objects with name, subject and version")
    return SchemaRequest(
        text=text,
        schema_type=str(found.get("schemaType") or AVRO),
        references=tuple(_reference(one) for one in references),
        metadata=_object(found, "metadata"),
        rule_set=_object(found, "ruleSet"),
        version=_positive(found, "version"),
        id=_positive(found, "id"),
    )


def _reference(found: Any) -> Reference:
    match found:
        case {"name": str(name), "subject": str(subject_name), "version": int(version)}:
            return Reference(name=name, subject=subject_name, version=version)
    raise RegistryError(422, "A reference has a name, a subject and a version (a number, -1 for the latest)")


def _object(found: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    value = found.get(name)
    if value is not None and not isinstance(value, dict):
        raise RegistryError(422, f"The field {name} is a JSON object")
    return value


def _positive(found: Mapping[str, Any], name: str) -> int | None:
    value = found.get(name)
    if value is None or value == 0:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or (value < 1 and value != LATEST):
        raise RegistryError(422, f"The field {name} is a positive number")
    return None if value == LATEST else value


def answer(request: Request, content: Any, status: int = 200) -> Response:
    """JSON in the media type that the client likes best."""
    accepted = request.headers.get("accept", "*/*").lower()
    kind = next((one for one in _OFFERED if one in accepted), MEDIA_TYPE)
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode(), status, _HEADERS, kind)


def filled(found: Mapping[str, Any]) -> dict[str, Any]:
    """Without fields that hold nothing, as Confluent leaves them out."""
    return {name: value for name, value in found.items() if value is not None and value not in ({}, [], "")}


def schema_fields(stored: StoredSchema) -> dict[str, Any]:
    """What every answer says of a schema."""
    artifact = stored.artifact
    return {
        "schemaType": artifact.schema_type,
        "references": [
            {"name": one.name, "subject": one.subject, "version": one.version} for one in artifact.references
        ],
        "metadata": artifact.metadata,
        "ruleSet": artifact.rule_set,
        "schema": artifact.text,
    }


def version_fields(found: Registered) -> dict[str, Any]:
    """What every answer says of a version."""
    return filled(
        {
            "subject": found.version.subject,
            "version": found.version.version,
            "id": found.schema.id,
            "guid": str(found.schema.artifact.guid),
            **schema_fields(found.schema),
            "ts": found.version.timestamp_ms,
            "deleted": found.version.deleted or None,
        }
    )
