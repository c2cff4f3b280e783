"""One connector, whatever its settings and whatever it does, ends neither its worker nor another connector."""

import pytest
from tests.support.connect_worker import Rest, worker_config
from tests.support.waiting import until

from busway import Producer
from busway_connect.server import ConnectServer

COUNTING = {"connector_class": "CountingSource", "topics": "numbers"}
ENVIRONMENT = {
    "config.providers": "env",
    "config.providers.env.class": "EnvVarConfigProvider",
    "config.providers.env.param.allowlist.pattern": "BUSWAY_.*",
}


async def at(rest: Rest, name: str, number: int) -> bool:
    """Whether a counting source has stored this number."""
    _, response = await rest.call("GET", f"/connectors/{name}/offsets")
    return bool(response["offsets"]) and response["offsets"][0]["offset"]["n"] == number


async def failed(rest: Rest, name: str) -> bool:
    """Whether the connector or its task has failed."""
    _, response = await rest.call("GET", f"/connectors/{name}/status")
    return "FAILED" in {response["connector"]["state"], *(task["state"] for task in response["tasks"])}


@pytest.mark.slow
async def test_a_setting_with_a_reference_is_read_resolved_everywhere(
    bus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the longest wait between two tries, which is read when a task starts again."""
    monkeypatch.setenv("BUSWAY_DELAY", "50")
    config = worker_config(bus, plugin_modules=("tests.support.connectors",), providers=ENVIRONMENT)
    async with ConnectServer(config) as server:
        rest = Rest(server.url)
        await rest.create("once", count="3", fails_at="0", errors_retry_delay_max_ms="${env:BUSWAY_DELAY}", **COUNTING)
        await until(lambda: at(rest, "once", 2))
        assert (await rest.call("DELETE", "/connectors/once"))[0] == 204
        await rest.http.aclose()


@pytest.mark.slow
async def test_a_reference_that_has_no_value_any_more_fails_its_connector_alone(
    bus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next worker starts, says so in the status, and deletes it."""
    monkeypatch.setenv("BUSWAY_DELAY", "50")
    config = worker_config(bus, plugin_modules=("tests.support.connectors",), providers=ENVIRONMENT)
    async with ConnectServer(config) as server:
        rest = Rest(server.url)
        await rest.create("gone", count="0", errors_retry_delay_max_ms="${env:BUSWAY_DELAY}", **COUNTING)
        await rest.create("good", count="3", **COUNTING)
        await rest.http.aclose()
    monkeypatch.delenv("BUSWAY_DELAY")
    async with ConnectServer(config) as server:
        rest = Rest(server.url)
        await until(lambda: at(rest, "good", 2))
        await until(lambda: failed(rest, "gone"))
        _, response = await rest.call("GET", "/connectors/gone/status")
        assert "errors.retry.delay.max.ms: the environment has no BUSWAY_DELAY" in response["connector"]["trace"]
        assert (await rest.call("DELETE", "/connectors/gone"))[0] == 204
        await rest.http.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["__init__", "start", "read"])
async def test_whatever_a_connector_does_is_its_own_failure(rest: Rest, where: str) -> None:
    """It exits, cancels itself, says half a character, five megabytes, or nothing that can be said; and is deleted."""
    ways = ("exit", "cancel", "half", "long", "unsayable")
    for how in ways:
        await rest.create(how, connector_class="MisbehavingSource", how=how, at=where)
    await rest.create("good", count="3", **COUNTING)
    for how in ways:
        await until(lambda how=how: failed(rest, how))  # type: ignore[misc]
    await until(lambda: at(rest, "good", 2))
    answer = await rest.http.get("/connectors?expand=status")
    assert len(answer.content) < 400_000
    for how in ways:
        assert (await rest.call("DELETE", f"/connectors/{how}"))[0] == 204
    assert (await rest.call("GET", "/connectors"))[1] == ["good"]


async def test_a_connector_that_cannot_let_go_is_deleted_all_the_same(rest: Rest) -> None:
    """What its end does is in the log."""
    for how in ("exit", "cancel", "unsayable"):
        await rest.create(how, connector_class="MisbehavingSource", how=how, at="stop")
        await rest.wait_for(how, "RUNNING")
        assert (await rest.call("DELETE", f"/connectors/{how}"))[0] == 204
    assert (await rest.call("GET", "/connectors"))[1] == []


async def test_what_others_wrote_into_the_storage_topics_keeps_no_worker_from_starting(bus: str) -> None:
    """Values of another form count as absent."""
    async with ConnectServer(worker_config(bus)):
        pass  # makes its topics
    deep = b"[" * 100_000
    async with Producer(bus) as producer:
        for key, value in [
            (b"connector-good", b'{"properties":{"name":"good","connector.class":"CountingSource","count":"3","topics":"numbers"}}'),
            (b"target-state-good", b"[]"),
            (b"commit-good", b'"one"'),
            (b"source-epoch-good", b'{"epoch":{}}'),
            (b"connector-\xff", b'{"properties":{"a":{}}}'),
            (b"connector-list", b"[1]"),
            (b"connector-deep", deep),
        ]:  # fmt: skip
            await producer.send_and_wait("connect-configs", value, key)
        await producer.send_and_wait("connect-offsets", b"{}", deep)
        await producer.send_and_wait("connect-offsets", b"[]", b'["good",{"counter":"one"}]')
        await producer.send_and_wait("connect-status", b"7", b"status-connector-good")
    async with ConnectServer(worker_config(bus, plugin_modules=("tests.support.connectors",))) as server:
        rest = Rest(server.url)
        await until(lambda: at(rest, "good", 2))
        await rest.http.aclose()
