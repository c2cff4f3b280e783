"""`/mode`: read-write, read-only, import."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from busway_registry.domain.errors import invalid_mode
from busway_registry.http.bodies import answer, flag, registry, subject
from busway_registry.http.reading import fields
from busway_registry.store.interface import GLOBAL


def _scope(request: Request) -> str:
    return subject(request) if "subject" in request.path_params else GLOBAL


async def get(request: Request) -> Response:
    default = flag(request, "defaultToGlobal")
    mode = await registry(request).settings.get_mode(_scope(request), default_to_global=default)
    return answer(request, {"mode": mode.value})


async def put(request: Request) -> Response:
    wanted = await fields(request, "mode")
    if "mode" not in wanted:
        raise invalid_mode()
    mode = await registry(request).settings.put_mode(_scope(request), wanted["mode"], force=flag(request, "force"))
    return answer(request, {"mode": mode.value} if mode is not None else {})


async def delete(request: Request) -> Response:
    mode = await registry(request).settings.delete_mode(_scope(request))
    return answer(request, {"mode": mode.value})


ROUTES = [
    Route(path, endpoint, methods=[method], name=f"mode.{verb}-{scope}")
    for path, scope in (("/mode", "global"), ("/mode/{subject}", "subject"))
    for method, verb, endpoint in (("GET", "get", get), ("PUT", "update", put), ("DELETE", "delete", delete))
]
