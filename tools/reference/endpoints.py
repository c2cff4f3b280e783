"""REST endpoints of registry, Connect worker and services.

Here: what each does; that all are listed is checked against the routes.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from typing import Any, Final

from starlette.routing import Route

from busway_connect.rest.resources import ROUTES as CONNECT_ROUTES
from busway_registry import http
from tools.reference.tables import code, table

REGISTRY: Final[Mapping[str, str]] = {
    "GET /": "an empty object; also `POST`",
    "GET /subjects": "names of subjects; `subjectPrefix`, `deleted`, `deletedOnly`, `offset`, `limit`",
    "POST /subjects/{subject}": "look up a schema: its id and version, 404 without",
    "DELETE /subjects/{subject}": "delete all versions; `permanent=true` after that",
    "GET /subjects/{subject}/metadata": "the latest version with metadata; `key`, `value`",
    "GET /subjects/{subject}/versions": "numbers of versions",
    "POST /subjects/{subject}/versions": "register a schema; returns its id",
    "GET /subjects/{subject}/versions/{version}": "a version, `latest` or -1",
    "DELETE /subjects/{subject}/versions/{version}": "delete a version; `permanent=true` after that",
    "GET /subjects/{subject}/versions/{version}/schema": "its schema alone",
    "GET /subjects/{subject}/versions/{version}/referencedby": "ids of schemas that refer to it",
    "GET /schemas": "all versions",
    "GET /schemas/types": '`["AVRO"]`',
    "GET /schemas/ids/{id}": "the schema of an id",
    "GET /schemas/ids/{id}/schema": "its text alone",
    "GET /schemas/ids/{id}/subjects": "subjects that have it",
    "GET /schemas/ids/{id}/versions": "subjects and versions that have it",
    "GET /schemas/guids/{guid}": "the schema of a GUID",
    "GET /schemas/guids/{guid}/ids": "ids of a GUID",
    "POST /compatibility/subjects/{subject}/versions": "compare a schema with the versions of a subject by its level; `verbose=true` gives the reasons",
    "POST /compatibility/subjects/{subject}/versions/{version}": "compare it with one version",
    "GET /config": "the default level",
    "PUT /config": "set it",
    "DELETE /config": "reset it",
    "GET /config/{subject}": "a subject's level; `defaultToGlobal`",
    "PUT /config/{subject}": "set it",
    "DELETE /config/{subject}": "reset it",
    "GET /mode": "the default mode",
    "PUT /mode": "set it: `READWRITE`, `READONLY`, `READONLY_OVERRIDE`, `IMPORT`",
    "DELETE /mode": "reset it",
    "GET /mode/{subject}": "a subject's mode",
    "PUT /mode/{subject}": "set it",
    "DELETE /mode/{subject}": "reset it",
    "GET /contexts": '`["."]`',
    "GET /associations/resources/{namespace}/{name}": "an empty list",
    "GET /associations/subjects/{subject}": "an empty list",
    "GET /v1/metadata/id": "the scope that tools display",
    "GET /v1/metadata/version": "Busway's version",
    "GET /health/live": "200 while the event loop runs",
    "GET /health/ready": "200, or 503 with `reasons` if the database cannot be read",
    "GET /metrics": "for Prometheus: [Metrics and health](../METRICS.md)",
}
CONNECT: Final[Mapping[str, str]] = {
    "GET /": "version and cluster id",
    "GET /health": "the worker's health",
    "GET /connectors": "names; `expand=status`, `expand=info`",
    "POST /connectors": "create a connector",
    "GET /connectors/{connector}": "its config and tasks",
    "DELETE /connectors/{connector}": "delete it",
    "GET /connectors/{connector}/config": "its config",
    "PUT /connectors/{connector}/config": "create or change it",
    "PATCH /connectors/{connector}/config": "change single settings; null removes one",
    "GET /connectors/{connector}/status": "state of connector and task, with the trace of a failure",
    "PUT /connectors/{connector}/pause": "pause",
    "PUT /connectors/{connector}/resume": "resume",
    "PUT /connectors/{connector}/stop": "stop: the tasks are removed",
    "POST /connectors/{connector}/restart": "restart; `includeTasks`, `onlyFailed`",
    "GET /connectors/{connector}/tasks": "its tasks with their configs",
    "GET /connectors/{connector}/tasks/{task}/status": "a task's state",
    "POST /connectors/{connector}/tasks/{task}/restart": "restart a task",
    "GET /connectors/{connector}/offsets": "its offsets",
    "PATCH /connectors/{connector}/offsets": "change them, while it is stopped",
    "DELETE /connectors/{connector}/offsets": "reset them, while it is stopped",
    "GET /connectors/{connector}/topics": "topics that it used",
    "PUT /connectors/{connector}/topics/reset": "forget them",
    "GET /connector-plugins": "plugins; `connectorsOnly=false` includes converters and transforms",
    "GET /connector-plugins/{plugin}/config": "a plugin's settings with their defaults",
    "PUT /connector-plugins/{plugin}/config/validate": "check a config",
    "GET /metrics": "for Prometheus",
}
SERVICE: Final[Mapping[str, str]] = {
    "GET /health/live": "200 while the event loop runs",
    "GET /health/ready": "200 when work gets done, else 503 with `reasons`, each naming its partition",
    "GET /metrics": "for Prometheus: [names](service-metrics.md)",
}
_OWN: Final = frozenset(
    {
        "GET /",
        "GET /contexts",
        "GET /associations/resources/{namespace}/{name}",
        "GET /associations/subjects/{subject}",
        "GET /v1/metadata/id",
        "GET /v1/metadata/version",
    }
)
"""Routes that the registry's application has beside those of its modules."""


def _names(routes: Iterable[Any]) -> set[str]:
    return {
        f"{method} {route.path}"
        for route in routes
        if isinstance(route, Route)
        for method in (route.methods or ())
        if method != "HEAD"
    }


def _checked(title: str, texts: Mapping[str, str], routes: set[str]) -> str:
    missing, gone = sorted(routes - texts.keys()), sorted(texts.keys() - routes)
    if missing or gone:
        raise SystemExit(f"tools/reference/endpoints.py, {title}: describe {missing}; remove {gone}")
    return _table(texts)


def _table(texts: Mapping[str, str]) -> str:
    return table(("request", "effect"), ((code(name), text) for name, text in texts.items()))


def page() -> str:
    """Return the page of endpoints."""
    modules = [
        importlib.import_module(f"{http.__name__}.{module.name}") for module in pkgutil.iter_modules(http.__path__)
    ]
    registry = _names(route for module in modules for route in getattr(module, "ROUTES", ())) | _OWN
    parts = (
        "# REST endpoints",
        "The list is compared with the code by `python -m tools.reference`; a test fails if it is stale.",
        "## Registry",
        'Confluent\'s Schema Registry API, on port 8081 by default. Errors are `{"error_code", "message"}` with Confluent\'s codes. A subject\'s slash is `%2F`.',
        _checked("REGISTRY", REGISTRY, registry),
        "## Connect worker",
        "Kafka Connect's API, on port 8083 by default; see [Connectors](../CONNECT.md).",
        _checked("CONNECT", CONNECT, _names(CONNECT_ROUTES) | {"GET /metrics"}),
        "## Service",
        "With `app.extend(Web())`, or `busway run --http PORT`; beside the paths of your own application.",
        _table(SERVICE),
        "## Broker",
        "With `metrics.listener`: [Metrics and health](../METRICS.md).",
    )
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"
