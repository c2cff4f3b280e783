"""`/compatibility`: check without registering."""

from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from busway_registry.domain.errors import RegistryError
from busway_registry.domain.subjects import parse_version
from busway_registry.http.bodies import answer, flag, registry, schema_request, subject


async def check(request: Request) -> Response:
    text = request.path_params.get("version")
    number = parse_version(unquote(text)) if text is not None else None
    verbose = flag(request, "verbose")
    try:
        messages = await registry(request).check(
            subject(request), await schema_request(request), number, normalize=flag(request, "normalize")
        )
    except RegistryError as problem:
        if problem.code != 42201 or not verbose:
            raise
        messages = [problem.message]
    content: dict[str, object] = {"is_compatible": not messages}
    if verbose:
        content["messages"] = messages
    return answer(request, content)


ROUTES = [
    Route(
        "/compatibility/subjects/{subject}/versions",
        check,
        methods=["POST"],
        name="compatibility.subjects.versions.verify",
    ),
    Route(
        "/compatibility/subjects/{subject}/versions/{version}",
        check,
        methods=["POST"],
        name="compatibility.subjects.versions.verify",
    ),
]
