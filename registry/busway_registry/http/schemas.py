"""`/schemas`: by id, by GUID, and all."""

from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from busway_registry.domain.errors import RegistryError, schema_not_found
from busway_registry.domain.schemas import SCHEMA_TYPES
from busway_registry.domain.subjects import parse_number
from busway_registry.http.bodies import (
    answer,
    filled,
    flag,
    long_answer,
    page,
    registry,
    schema_fields,
    schemas_answer,
    text_answer,
)
from busway_registry.store.interface import StoredSchema

_MOST_SCHEMAS: Final = 1000
"""Limit of a list (Confluent: `schema.search.max.limit`)."""


def _id(request: Request) -> int:
    text = unquote(request.path_params["id"])
    number = parse_number(text)
    if number is not None:
        return number
    if text.removeprefix("-").isdecimal():
        raise schema_not_found(text[:20])
    raise RegistryError(404, f"A schema id is a number, not '{text[:40]}'")


async def types(request: Request) -> Response:
    return answer(request, list(SCHEMA_TYPES))


async def every(request: Request) -> Response:
    prefix = request.query_params.get("subjectPrefix", "").removeprefix(":*:")
    versions = await registry(request).all_versions(
        prefix,
        deleted=flag(request, "deleted"),
        latest_only=flag(request, "latestOnly"),
        part=page(request, _MOST_SCHEMAS),
    )
    return schemas_answer(request, versions)


async def by_id(request: Request) -> Response:
    """Return a schema, also a soft-deleted one, as records carry its id."""
    stored = await registry(request).schema(_id(request))
    content = _with_guid(stored)
    if flag(request, "fetchMaxId"):
        content["maxId"] = await registry(request).highest_id()
    if "subject" in request.query_params:
        wanted = request.query_params["subject"]
        uses = await registry(request).uses(stored.id, deleted=True, subject=wanted) if "\0" not in wanted else []
        if uses:
            content |= {"subject": wanted, "version": uses[-1].version, "ts": uses[-1].timestamp_ms}
    return answer(request, content)


async def text_by_id(request: Request) -> Response:
    stored = await registry(request).schema(_id(request))
    return text_answer(request, stored.artifact.text)


async def subjects_of(request: Request) -> Response:
    subjects = await registry(request).subjects_of(_id(request), deleted=flag(request, "deleted"), part=page(request))
    return long_answer(request, subjects)


async def versions_of(request: Request) -> Response:
    uses = await registry(request).uses(_id(request), deleted=flag(request, "deleted"), part=page(request))
    return long_answer(request, uses, lambda version: {"subject": version.subject, "version": version.version})


async def by_guid(request: Request) -> Response:
    schemas = await registry(request).schemas_with_guid(request.path_params["guid"].lower())
    if not schemas:
        raise schema_not_found(request.path_params["guid"])
    return answer(request, _with_guid(schemas[0]))


async def ids_of_guid(request: Request) -> Response:
    schemas = await registry(request).schemas_with_guid(request.path_params["guid"].lower())
    return answer(request, [{"context": ".", "id": schema.id} for schema in schemas])


def _with_guid(stored: StoredSchema) -> dict[str, Any]:
    return filled({**schema_fields(stored), "guid": str(stored.artifact.guid)})


ROUTES = [
    Route("/schemas", every, name="schemas.get-schemas"),
    Route("/schemas/types", types, name="schemas.get-types"),
    Route("/schemas/ids/{id}", by_id, name="schemas.ids.get-schema"),
    Route("/schemas/ids/{id}/schema", text_by_id, name="schemas.ids.get-schema.only"),
    Route("/schemas/ids/{id}/subjects", subjects_of, name="schemas.get-subjects"),
    Route("/schemas/ids/{id}/versions", versions_of, name="schemas.get-versions"),
    Route("/schemas/guids/{guid}", by_guid, name="schemas.guids.get-schema"),
    Route("/schemas/guids/{guid}/ids", ids_of_guid, name="schemas.guids.get-ids"),
]
