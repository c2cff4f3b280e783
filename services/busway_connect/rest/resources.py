"""Kafka Connect's REST API, path by path.

Here: mapping requests to use cases, and shapes of responses.
Not here: bodies and errors (`bodies`), use cases (`worker`).

Source: `org.apache.kafka.connect.runtime.rest.resources` of Kafka 4.3.1.
"""

import asyncio
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from busway_connect.plugins import NoSuchPlugin, kind_of
from busway_connect.rest.bodies import answer, empty, read_object, text, texts
from busway_connect.runtime.refusals import Refused
from busway_connect.runtime.runner import Runner
from busway_connect.runtime.worker import Worker
from busway_connect.validation import definition, known_settings

_INITIAL: Final = {"RUNNING": "STARTED", "PAUSED": "PAUSED", "STOPPED": "STOPPED"}
_TASK: Final = re.compile("[0-9]{1,9}")
_MODIFIED: Final = "The offsets for this connector have been {} successfully"


def _worker(request: Request) -> Worker:
    worker: Worker = request.app.state.worker
    return worker


def _name(request: Request) -> str:
    return unquote(request.path_params["connector"])


# The worker


async def root(request: Request) -> Response:
    return answer({"version": version("busway"), "commit": "busway", "kafka_cluster_id": _worker(request).cluster_id})


async def health(request: Request) -> Response:
    """Return whether it serves (KIP-1017)."""
    if _worker(request).active.is_set():
        text = "Worker has completed startup and is ready to handle requests."
        return answer({"status": "healthy", "message": text})
    text = "Worker is still starting up. It stands by for another worker of its group, or is taking over."
    return answer({"status": "starting", "message": text}, 503)


# Connectors


def _info(worker: Worker, runner: Runner) -> dict[str, Any]:
    kind = worker.kind(runner)
    return {
        "name": runner.name,
        "config": dict(runner.config),
        "tasks": [{"connector": runner.name, "task": 0}] if runner.task is not None else [],
        "type": "unknown" if kind is None else kind_of(kind),
    }


def _state(worker: Worker, name: str, trace: str | None, shown: str | None) -> dict[str, Any]:
    state = {"state": name, "worker_id": worker.worker_id, "trace": trace, "version": shown}
    return {key: text for key, text in state.items() if text is not None}


def _status(worker: Worker, runner: Runner, **instead: str) -> dict[str, Any]:
    kind = worker.kind(runner)
    shown = None if kind is None else kind.version
    tasks = []
    if runner.task is not None:
        name, trace = runner.task.name, runner.task.trace
        if "task" in instead:
            name, trace = instead["task"], None
        tasks = [{"id": 0, **_state(worker, name, trace, shown)}]
    name, trace = runner.state.name, runner.state.trace
    if "connector" in instead:
        name, trace = instead["connector"], None
    return {
        "name": runner.name,
        "connector": _state(worker, name, trace, shown),
        "tasks": tasks,
        "type": "unknown" if kind is None else kind_of(kind),
    }


async def list_connectors(request: Request) -> Response:
    worker = _worker(request)
    names = worker.names()
    if "expand" not in request.query_params:
        return answer(names)
    wanted = request.query_params.getlist("expand")
    connectors: dict[str, Any] = {}
    for name in names:
        runner = worker.find(name)
        connectors[name] = {}
        if "status" in wanted:
            connectors[name]["status"] = _status(worker, runner)
        if "info" in wanted:
            connectors[name]["info"] = _info(worker, runner)
    return await asyncio.to_thread(answer, connectors)  # may be megabytes


async def create_connector(request: Request) -> Response:
    """Create from `{"name": …, "config": {…}, "initial_state": …}`."""
    body = await read_object(request)
    unknown = body.keys() - {"name", "config", "initial_state"}
    if unknown:
        raise Refused(400, f"Unrecognized field {sorted(unknown)[0]!r}; there is name, config and initial_state")
    if body.get("config") is None:
        raise Refused(400, "There is no config; it is an object of names and texts")
    state = (text(body.get("initial_state"), "initial_state") or "RUNNING").upper()
    if state not in _INITIAL:
        raise Refused(400, f"initial_state is RUNNING, PAUSED or STOPPED, not {state!r}")
    name = (text(body.get("name"), "name") or "").strip()
    return await _put(request, name, texts(body["config"], "config"), create=True, target=_INITIAL[state])


def _same_name(name: str, given: Mapping[str, str | None]) -> None:
    included = given.get("name")
    if included is not None and included != name:
        raise Refused(
            400, f"Connector name configuration ({included}) doesn't match connector name in the URL ({name})"
        )


async def _put(
    request: Request, name: str, given: Mapping[str, str | None], *, create: bool, target: str = "STARTED"
) -> Response:
    _same_name(name, given)
    config = {**{setting: text for setting, text in given.items() if text is not None}, "name": name}
    worker = _worker(request)
    new = await worker.put(name, config, create=create, target=target)
    if not new:
        return answer(_info(worker, worker.find(name)))
    location = str(request.url.replace(path=f"/connectors/{quote(name, safe='')}", query=""))
    return answer(_info(worker, worker.find(name)), 201, {"Location": location})


async def get_connector(request: Request) -> Response:
    worker = _worker(request)
    return answer(_info(worker, worker.find(_name(request))))


async def delete_connector(request: Request) -> Response:
    await _worker(request).delete(_name(request))
    return empty(204)


async def get_config(request: Request) -> Response:
    return answer(dict(_worker(request).find(_name(request)).config))


async def put_config(request: Request) -> Response:
    given = texts(await read_object(request), "the body")
    return await _put(request, _name(request), given, create=False)


async def patch_config(request: Request) -> Response:
    worker, name = _worker(request), _name(request)
    changes = texts(await read_object(request), "the body")
    _same_name(name, changes)
    await worker.patch(name, changes)
    return answer(_info(worker, worker.find(name)))


async def get_status(request: Request) -> Response:
    worker = _worker(request)
    return answer(_status(worker, worker.find(_name(request), "No status found for connector {}")))


async def pause(request: Request) -> Response:
    await _worker(request).retarget(_name(request), "PAUSED")
    return empty(202)


async def resume(request: Request) -> Response:
    await _worker(request).retarget(_name(request), "STARTED")
    return empty(202)


async def stop(request: Request) -> Response:
    await _worker(request).retarget(_name(request), "STOPPED")
    return empty(204)


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "false").lower() == "true"


async def restart(request: Request) -> Response:
    """Restart the connector, with `includeTasks=true` also its task (KIP-745)."""
    worker = _worker(request)
    runner = worker.find(_name(request), "Unknown connector: {}")
    include, only_failed = _flag(request, "includeTasks"), _flag(request, "onlyFailed")
    of_connector = not only_failed or runner.state.name == "FAILED"
    of_task = include and runner.task is not None and (not only_failed or runner.task.name == "FAILED")
    instead = {**({"connector": "RESTARTING"} if of_connector else {}), **({"task": "RESTARTING"} if of_task else {})}
    shown = _status(worker, runner, **instead)
    if of_task or (of_connector and runner.state.name == "FAILED"):
        runner.restart()
    return answer(shown, 202) if include or only_failed else empty(204)


# Tasks


def _task(request: Request) -> int:
    number: str = request.path_params["task"]
    if not _TASK.fullmatch(number):
        raise Refused(404, "HTTP 404 Not Found")
    return int(number)


async def list_tasks(request: Request) -> Response:
    runner = _worker(request).find(_name(request))
    if runner.task is None:
        return answer([])
    return answer([{"id": {"connector": runner.name, "task": 0}, "config": dict(runner.config)}])


async def get_task_status(request: Request) -> Response:
    worker, name, number = _worker(request), _name(request), _task(request)
    text = f"No status found for task {name}-{number}"
    tasks = _status(worker, worker.find(name, text))["tasks"]
    if number >= len(tasks):
        raise Refused(404, text)
    return answer(tasks[number])


async def restart_task(request: Request) -> Response:
    await _worker(request).restart_task(_name(request), _task(request))
    return empty(204)


# Offsets and topics


async def get_offsets(request: Request) -> Response:
    offsets = await _worker(request).offsets(_name(request))
    return answer({"offsets": [{"partition": dict(partition), "offset": dict(at)} for partition, at in offsets]})


async def patch_offsets(request: Request) -> Response:
    body = await read_object(request)
    given = body.get("offsets")
    if not isinstance(given, list) or not given:
        raise Refused(400, "Partitions / offsets need to be provided for an alter offsets request")
    changes: list[tuple[Mapping[str, Any], Mapping[str, Any] | None]] = []
    for entry in given:
        partition = entry.get("partition") if isinstance(entry, dict) else None
        if not isinstance(partition, dict):
            raise Refused(400, "Partition objects cannot be null")
        offset = entry.get("offset")
        if offset is not None and not isinstance(offset, dict):
            raise Refused(400, f"An offset is an object or null, not {offset!r:.80}")
        changes.append((partition, offset))
    await _worker(request).alter_offsets(_name(request), changes)
    return answer({"message": _MODIFIED.format("altered")})


async def delete_offsets(request: Request) -> Response:
    await _worker(request).reset_offsets(_name(request))
    return answer({"message": _MODIFIED.format("reset")})


async def get_topics(request: Request) -> Response:
    name = _name(request)
    return answer({name: {"topics": _worker(request).topics(name)}})


async def reset_topics(request: Request) -> Response:
    await _worker(request).reset_topics(_name(request))
    return empty(202)


# Plugins


async def list_plugins(request: Request) -> Response:
    """List connectors; with `connectorsOnly=false` also transforms and converters."""
    plugins = _worker(request).plugins
    infos = plugins.connectors()
    if request.query_params.get("connectorsOnly", "true").lower() == "false":
        infos += plugins.others()
    shown = [{"class": info.class_name, "type": info.kind, "version": info.version} for info in infos]
    return answer([{name: text for name, text in entry.items() if text} for entry in shown])


async def plugin_config(request: Request) -> Response:
    name = unquote(request.path_params["plugin"])
    try:
        kind = _worker(request).plugins.connector(name)
    except NoSuchPlugin:
        raise Refused(404, f"Unknown plugin {name}.") from None
    return answer([definition(setting) for setting in known_settings(kind) if setting.group is None])


async def validate(request: Request) -> Response:
    plugin = unquote(request.path_params["plugin"])
    given = texts(await read_object(request), "the body")
    config = {setting: text for setting, text in given.items() if text is not None}
    included = config.get("connector.class")
    if included is not None and not included.removesuffix("Connector").endswith(plugin.removesuffix("Connector")):
        raise Refused(400, f"Included connector type {included} does not match request type {plugin}")
    return answer(await _worker(request).verdict(config))


def _both(path: str, **methods: Any) -> list[Route]:
    return [Route(path, endpoint, methods=[method]) for method, endpoint in methods.items()]


_ONE: Final = "/connectors/{connector}"
ROUTES: Final = [
    *_both("/", GET=root),
    *_both("/health", GET=health),
    *_both("/connectors", GET=list_connectors, POST=create_connector),
    *_both(_ONE, GET=get_connector, DELETE=delete_connector),
    *_both(f"{_ONE}/config", GET=get_config, PUT=put_config, PATCH=patch_config),
    *_both(f"{_ONE}/status", GET=get_status),
    *_both(f"{_ONE}/pause", PUT=pause),
    *_both(f"{_ONE}/resume", PUT=resume),
    *_both(f"{_ONE}/stop", PUT=stop),
    *_both(f"{_ONE}/restart", POST=restart),
    *_both(f"{_ONE}/tasks", GET=list_tasks),
    *_both(f"{_ONE}/tasks/{{task}}/status", GET=get_task_status),
    *_both(f"{_ONE}/tasks/{{task}}/restart", POST=restart_task),
    *_both(f"{_ONE}/offsets", GET=get_offsets, PATCH=patch_offsets, DELETE=delete_offsets),
    *_both(f"{_ONE}/topics", GET=get_topics),
    *_both(f"{_ONE}/topics/reset", PUT=reset_topics),
    *_both("/connector-plugins", GET=list_plugins),
    *_both("/connector-plugins/{plugin}/config", GET=plugin_config),
    *_both("/connector-plugins/{plugin}/config/validate", PUT=validate),
]
