"""`/config`: compatibility levels."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from busway_registry.http.bodies import answer, flag, registry, subject
from busway_registry.http.reading import fields
from busway_registry.settings import SETTINGS
from busway_registry.store.interface import GLOBAL


def _scope(request: Request) -> str:
    return subject(request) if "subject" in request.path_params else GLOBAL


async def get(request: Request) -> Response:
    default = flag(request, "defaultToGlobal")
    return answer(request, await registry(request).settings.get_config(_scope(request), default_to_global=default))


async def put(request: Request) -> Response:
    return answer(
        request, await registry(request).settings.put_config(_scope(request), await fields(request, *SETTINGS))
    )


async def delete(request: Request) -> Response:
    return answer(request, await registry(request).settings.delete_config(_scope(request)))


ROUTES = [
    Route(path, endpoint, methods=[method], name=f"config.{verb}-{scope}")
    for path, scope in (("/config", "global"), ("/config/{subject}", "subject"))
    for method, verb, endpoint in (("GET", "get", get), ("PUT", "update", put), ("DELETE", "delete", delete))
]
