"""`/subjects`: names, versions, registration, lookup, deletion."""

from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from busway_registry.domain.subjects import parse_version
from busway_registry.http.bodies import (
    answer,
    deleted,
    flag,
    long_answer,
    page,
    registry,
    schema_request,
    subject,
    text_answer,
    version_fields,
)


async def names(request: Request) -> Response:
    prefix = request.query_params.get("subjectPrefix", "").removeprefix(":*:")
    return long_answer(request, await registry(request).subjects(prefix, deleted(request), page(request)))


async def look_up(request: Request) -> Response:
    registered = await registry(request).look_up(
        subject(request),
        await schema_request(request),
        normalize=flag(request, "normalize"),
        deleted=flag(request, "deleted"),
    )
    return answer(request, version_fields(registered))


async def delete(request: Request) -> Response:
    return answer(
        request, await registry(request).delete_subject(subject(request), permanent=flag(request, "permanent"))
    )


async def versions(request: Request) -> Response:
    return long_answer(request, await registry(request).versions(subject(request), deleted(request), page(request)))


async def register(request: Request) -> Response:
    registered = await registry(request).register(
        subject(request),
        await schema_request(request),
        normalize=flag(request, "normalize"),
        force=flag(request, "force"),
    )
    return answer(request, {"id": registered.schema.id, **_without_subject(version_fields(registered))})


def _without_subject(fields: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if name != "subject"}


async def latest_with_metadata(request: Request) -> Response:
    query = request.query_params
    wanted = dict(zip(query.getlist("key"), query.getlist("value"), strict=False))
    registered = await registry(request).latest_with_metadata(
        subject(request), wanted, deleted=flag(request, "deleted")
    )
    return answer(request, version_fields(registered))


async def version(request: Request) -> Response:
    number = parse_version(unquote(request.path_params["version"]))
    registered = await registry(request).version(subject(request), number, deleted=flag(request, "deleted"))
    return answer(request, version_fields(registered))


async def version_text(request: Request) -> Response:
    number = parse_version(unquote(request.path_params["version"]))
    registered = await registry(request).version(subject(request), number, deleted=flag(request, "deleted"))
    return text_answer(request, registered.schema.artifact.text)


async def referenced_by(request: Request) -> Response:
    number = parse_version(unquote(request.path_params["version"]))
    schema_ids = await registry(request).referenced_by(
        subject(request), number, deleted=flag(request, "deleted"), part=page(request)
    )
    return long_answer(request, schema_ids)


async def delete_version(request: Request) -> Response:
    number = parse_version(unquote(request.path_params["version"]))
    return answer(
        request, await registry(request).delete_version(subject(request), number, permanent=flag(request, "permanent"))
    )


ROUTES = [
    Route("/subjects", names, name="subjects.list"),
    Route("/subjects/{subject}", look_up, methods=["POST"], name="subjects.get-schema"),
    Route("/subjects/{subject}", delete, methods=["DELETE"], name="subjects.delete-subject"),
    Route("/subjects/{subject}/metadata", latest_with_metadata, name="subjects.get-latest-with-metadata"),
    Route("/subjects/{subject}/versions", versions, name="subjects.versions.list"),
    Route("/subjects/{subject}/versions", register, methods=["POST"], name="subjects.versions.register"),
    Route("/subjects/{subject}/versions/{version}", version, name="subjects.versions.get-schema"),
    Route(
        "/subjects/{subject}/versions/{version}",
        delete_version,
        methods=["DELETE"],
        name="subjects.versions.deleteSchemaVersion-schema",
    ),
    Route("/subjects/{subject}/versions/{version}/schema", version_text, name="subjects.versions.get-schema.only"),
    Route(
        "/subjects/{subject}/versions/{version}/referencedby", referenced_by, name="subjects.versions.list-schema-refs"
    ),
]
