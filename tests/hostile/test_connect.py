"""What one client asks of a worker of connectors by its REST API keeps no other client waiting."""

import json
from typing import Any

from tests.support.busway_process import BuswayProcess
from tests.support.canary import Canary, HttpQuestion
from tests.support.connect_worker import Rest, WorkerProcess
from tests.support.waiting import until

ENDLESS = r"(a|aa)+"
NAME = "a" * 100 + "."
SINK = {"connector.class": "CollectingSink", "topics": "t"}
ROUTER = {"type": "RegexRouter", "regex": ENDLESS, "replacement": "t"}


def _many_routers() -> dict[str, str]:
    aliases = [f"a{number}" for number in range(50)]
    return {
        **SINK,
        "transforms": ",".join(aliases),
        **{f"transforms.{alias}.type": "RegexRouter" for alias in aliases},
        **{f"transforms.{alias}.regex": "(x|y|z)" * 100 + alias for alias in aliases},
        **{f"transforms.{alias}.replacement": "t" for alias in aliases},
    }


CONFIGS: list[dict[str, Any]] = [
    {"connector.class": "CollectingSink", "topics.regex": ENDLESS, "errors.deadletterqueue.topic.name": NAME},
    {**SINK, "topics.regex": "(" * 8000},
    {**SINK, **{f"x.{number}": "y" * 900 for number in range(900)}},
    {**SINK, "transforms": ",".join(f"a{number}" for number in range(20_000))},
    {**SINK, "note": "://:" * 200_000},
    {**SINK, "note": "${env:" * 150_000},
    {**SINK, "tasks.max": "9" * 900_000},
    {**SINK, "note": [{}] * 200_000},
    {"connector.class": "x" * 900_000},
    _many_routers(),
]
BODIES = [b"[" * 1_000_000, b'{"a":' * 200_000, json.dumps("x" * 1_000_000).encode(), b"[" + b"{}," * 300_000 + b"{}]"]


async def test_nothing_that_is_asked_by_rest_stalls_the_worker(hostile_broker: BuswayProcess) -> None:
    """Expressions without end, where they are checked and where records go; large bodies and offsets, deep JSON, many connectors."""
    async with WorkerProcess(hostile_broker.bootstrap_servers, session_ms=6000) as worker, worker.rest() as rest:
        host, port = rest.url.removeprefix("http://").rsplit(":", 1)
        ask = HttpQuestion(host, int(port), "/")
        with Canary(worker.process.pid, ask) as canary:
            await _checks(rest)
            await _tasks(rest)
            await _lists(rest)
        canary.check()


async def _checks(rest: Rest) -> None:
    for config in CONFIGS:
        for path in ("/connector-plugins/CollectingSink/config/validate", "/connectors/x/config"):
            status, _ = await rest.call("PUT", path, config)
            assert status in {200, 201, 400, 413}, (status, str(config)[:100])
    for content in BODIES:
        answer = await rest.http.put(
            "/connectors/x/config", content=content, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 400


async def _tasks(rest: Rest) -> None:
    router = {f"transforms.r.{name}": text for name, text in ROUTER.items()}
    config = {"connector.class": "CountingSource", "count": "20", "topics": NAME, "transforms": "r", **router}
    assert (await rest.call("PUT", "/connectors/route/config", config))[0] == 201
    await rest.wait_for("route", "FAILED")
    await rest.create("plain", connector_class="CountingSource", count="1", topics=NAME)
    await until(lambda: _written(rest))
    assert (
        await rest.call(
            "PUT", "/connectors/find/config", {"connector.class": "CollectingSink", "topics.regex": ENDLESS}
        )
    )[0] == 201
    await rest.wait_for("find", "FAILED")


async def _written(rest: Rest) -> bool:
    return bool((await rest.call("GET", "/connectors/plain/offsets"))[1]["offsets"])


async def _lists(rest: Rest) -> None:
    assert (await rest.call("PUT", "/connectors/plain/stop"))[0] == 204
    offsets = [{"partition": {"number": number}, "offset": {"at": 1}} for number in range(20_000)]
    assert (await rest.call("PATCH", "/connectors/plain/offsets", {"offsets": offsets}))[0] == 413
    assert (await rest.call("PATCH", "/connectors/plain/offsets", {"offsets": offsets[:1000]}))[0] == 200
    assert len((await rest.call("GET", "/connectors/plain/offsets"))[1]["offsets"]) >= 1000
    assert (await rest.call("DELETE", "/connectors/plain/offsets"))[0] == 200
    large = {"transforms": "r", "transforms.r.type": "RegexRouter", "transforms.r.regex": "x"}
    statuses = []
    for number in range(25):
        config = {"connector.class": "CountingSource", "count": "0", "topics": "t", **large}
        body = {
            "name": f"many-{number}",
            "initial_state": "STOPPED",
            "config": {**config, "transforms.r.replacement": "t" * 900_000},
        }
        statuses.append((await rest.call("POST", "/connectors", body))[0])
    assert statuses.count(201) == 18
    assert set(statuses) == {201, 409}
    assert (await rest.call("GET", "/connectors?expand=info&expand=status"))[0] == 200
