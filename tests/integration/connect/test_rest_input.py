"""What a careless or hostile client sends to the REST API: an answer that names the fault, and nothing half done."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

from tests.support.connect_worker import Rest, worker_config
from tests.support.patience import patient
from tests.support.waiting import until

from busway import Admin, Producer
from busway_connect.server import ConnectServer

GOOD = {"connector.class": "CountingSource", "count": "0", "topics": "numbers"}


BAD: list[Any] = [
    {"name": {"a": 1}, "config": GOOD},
    {"name": ["a"], "config": GOOD},
    {"name": "a\ud800", "config": GOOD},
    {"name": "x", "config": {**GOOD, "note": "\ud800"}},
    {"name": "x", "config": {**GOOD, "\ud800": "note"}},
    {"name": "x", "config": GOOD, "initial_state": ["RUNNING"]},
    {"name": "x", "config": GOOD, "initial_state": {"a": 1}},
    {"name": "", "config": GOOD},
    {"config": GOOD},
]
NAMES = ["with blank", "with/slash", "50%", "%2F", "ünï", "a:connector-b", "a?b#c", "..", "-"]


async def test_what_can_be_no_connector_is_the_clients_fault(rest: Rest) -> None:
    """400 with a reason, and no connector."""
    for body in BAD:
        answer = await rest.http.post(
            "/connectors", content=json.dumps(body), headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, answer.json()["error_code"]) == (400, 400), body
    assert (await rest.call("GET", "/connectors"))[1] == []


async def test_any_other_name_works(rest: Rest) -> None:
    """Encoded as one part of the path, from its making to its end."""
    for name in NAMES:
        part = quote(name, safe="").replace(".", "%2E")
        path = f"/connectors/{part}"
        assert (await rest.call("POST", "/connectors", {"name": name, "config": GOOD}))[0] == 201
        await rest.wait_for(part, "RUNNING")
        assert (await rest.call("GET", f"{path}/config"))[1]["name"] == name
        assert (await rest.call("PUT", f"{path}/config", {**GOOD, "count": "1"}))[0] == 200
        assert (await rest.call("GET", f"{path}/tasks/{'9' * 5000}/status"))[0] == 404
        assert (await rest.call("DELETE", path))[0] == 204
        assert (await rest.call("GET", path))[0] == 404


async def test_the_state_to_begin_with_goes_by_any_case(rest: Rest) -> None:
    """As in Kafka Connect."""
    body = {"name": "x", "config": GOOD, "initial_state": "stopped"}
    assert (await rest.call("POST", "/connectors", body))[0] == 201
    await rest.wait_for("x", None)


async def test_changes_at_the_same_time_are_all_there(rest: Rest) -> None:
    """Twenty PATCHes at once of a setting each: every one that was answered holds."""
    await rest.create("x", **{name.replace(".", "_"): text for name, text in GOOD.items()})
    answers = await asyncio.gather(
        *(rest.call("PATCH", "/connectors/x/config", {f"note.{number}": str(number)}) for number in range(20))
    )
    assert [status for status, _ in answers] == [200] * 20
    _, config = await rest.call("GET", "/connectors/x/config")
    assert {f"note.{number}" for number in range(20)} <= config.keys()


async def test_a_change_of_settings_cannot_rename(rest: Rest) -> None:
    """The name in the settings is the one in the path, by PATCH as by PUT."""
    await rest.create("x", **{name.replace(".", "_"): text for name, text in GOOD.items()})
    for method in ("PUT", "PATCH"):
        status, response = await rest.call(method, "/connectors/x/config", {**GOOD, "name": "y"})
        assert status == 400
        assert "Connector name configuration (y) doesn't match connector name in the URL (x)" in response["message"]
    assert (await rest.call("GET", "/connectors/x/config"))[1]["name"] == "x"


async def test_topics_of_a_connector_are_not_anothers_of_a_like_name(rest: Rest) -> None:
    """`b` and `a:connector-b` are two."""
    settings = {name.replace(".", "_"): text for name, text in {**GOOD, "count": "3"}.items()}
    await rest.create("a:connector-b", **settings)
    await rest.create("b", **{**settings, "topics": "others"})
    for name, topic in (("a:connector-b", "numbers"), ("b", "others")):
        async with asyncio.timeout(patient(20)):
            while (topics := (await rest.call("GET", f"/connectors/{name}/topics"))[1]) != {name: {"topics": [topic]}}:
                assert topics[name]["topics"] in ([], [topic])
                await asyncio.sleep(0.02)


async def test_each_wrong_setting_is_named(rest: Rest) -> None:
    """In Kafka Connect's words where it has some."""
    cases = {
        (
            "errors.tolerance",
            "ALL",
        ): "Invalid value ALL for configuration errors.tolerance: String must be one of: none, all",
        ("exactly.once.support", "never"): "String must be one of (case insensitive): REQUIRED, REQUESTED",
        ("exactly.once.support", "required"): "\nThis worker does not have exactly-once source support enabled.\n",
        (
            "transaction.boundary",
            "never",
        ): "Invalid value never for configuration transaction.boundary: String must be one of"
        " (case insensitive): INTERVAL, POLL, CONNECTOR",
        (
            "transaction.boundary",
            "Connector",
        ): "\nThe connector does not support connector-defined transaction boundaries with the given"
        " configuration. Please reconfigure it to use a different transaction boundary definition.\n",
        ("transaction.boundary.interval.ms", "-1"): "transaction.boundary.interval.ms: Value must be at least 0",
        ("offsets.storage.topic", "mine"): "offsets.storage.topic: it is not served",
        ("errors.retry.delay.max.ms", "0"): "errors.retry.delay.max.ms: Value must be at least 1",
        ("errors.retry.timeout", "-2"): "errors.retry.timeout: Value must be at least -1",
    }
    for (name, value), says in cases.items():
        status, response = await rest.call("PUT", "/connectors/x/config", {**GOOD, name: value})
        assert status == 400
        assert says in response["message"]
    avro = {"connector.class": "CollectingSink", "topics": "in", "value.converter": "AvroConverter"}
    status, response = await rest.call("PUT", "/connectors/y/config", avro)
    assert status == 400
    assert 'Missing required configuration "value.converter.schema.registry.url"' in response["message"]


async def test_a_password_in_the_query_of_an_address_is_hidden(rest: Rest) -> None:
    """In refusals and in the validate call."""
    config = {"connector.class": "JdbcSink", "connection.url": "jdbc:postgresql://h/d?user=u&password=hunter2&ssl=true"}
    path = "/connector-plugins/JdbcSink/config/validate"
    _, verdict = await rest.call("PUT", path, config)
    assert "hunter2" not in str(verdict)
    assert "ssl=true" in str(verdict)
    _, refusal = await rest.call("POST", "/connectors", {"name": "x", "config": {**config, "connector.class": ""}})
    assert "hunter2" not in str(refusal)


async def test_a_connector_that_cannot_be_forgotten_goes_on(rest: Rest, bus: str) -> None:
    """The storage topic refuses the write: an error, and no connector that is listed and never runs again."""
    await rest.create("x", **{name.replace(".", "_"): text for name, text in GOOD.items()})
    await rest.wait_for("x", "RUNNING")
    async with Admin(bus) as admin:
        await admin.alter_configs("connect-configs", {"max.message.bytes": "1"})
        assert (await rest.call("DELETE", "/connectors/x"))[0] == 500
        await admin.alter_configs("connect-configs", {"max.message.bytes": "1000000"})
    assert (await rest.call("PATCH", "/connectors/x/config", {"count": "3"}))[0] == 200
    async with asyncio.timeout(patient(20)):
        while not (await rest.call("GET", "/connectors/x/offsets"))[1]["offsets"]:
            await asyncio.sleep(0.02)
    assert (await rest.call("DELETE", "/connectors/x"))[0] == 204
    assert (await rest.call("GET", "/connectors"))[1] == []


async def test_settings_too_large_to_keep_are_the_clients_fault(rest: Rest) -> None:
    """Grown by PATCH beyond what a record of the storage topic holds: 413, and the connector is as it was."""
    await rest.create("x", **{name.replace(".", "_"): text for name, text in GOOD.items()})
    assert (await rest.call("PATCH", "/connectors/x/config", {"note.a": "x" * 600_000}))[0] == 200
    status, response = await rest.call("PATCH", "/connectors/x/config", {"note.b": "x" * 600_000})
    assert (status, response["error_code"]) == (413, 413)
    assert "note.b" not in (await rest.call("GET", "/connectors/x/config"))[1]


async def test_an_offset_that_can_be_none_is_refused(rest: Rest) -> None:
    """The connector itself judges it, before it is stored and the task could not start any more."""
    postgres = {
        "connector.class": "PostgresConnector", "database.hostname": "127.0.0.1", "database.port": "1",
        "database.user": "u", "database.dbname": "d", "topic.prefix": "bank",
    }  # fmt: skip
    file = {"connector.class": "FileStreamSource", "file": "in", "topic": "t"}
    cases: list[tuple[dict[str, str], Any, Any, str]] = [
        (postgres, {"server": "other"}, {"lsn": 1}, "the partition is {'server': 'bank'}"),
        (postgres, {"server": "bank"}, {"lsn": "far"}, "is no position in PostgreSQL's log"),
        (postgres, {"server": "bank"}, {}, "is no position"),
        (file, {"filename": "in"}, {"position": "far"}, "the position is a number"),
        (file, {"name": "in"}, {"position": 1}, "the partition has one member"),
    ]
    for number, (config, partition, offset, says) in enumerate(cases):
        body = {"name": f"c{number}", "config": config, "initial_state": "STOPPED"}
        assert (await rest.call("POST", "/connectors", body))[0] == 201
        change = {"offsets": [{"partition": partition, "offset": offset}]}
        status, response = await rest.call("PATCH", f"/connectors/c{number}/offsets", change)
        assert status == 400
        assert says in response["message"]
        assert (await rest.call("GET", f"/connectors/c{number}/offsets"))[1] == {"offsets": []}


POSTGRES = {
    "connector.class": "PostgresConnector", "database.hostname": "127.0.0.1", "database.port": "1",
    "database.user": "u", "database.dbname": "d", "topic.prefix": "bank",
}  # fmt: skip


async def test_a_setting_that_would_keep_something_back_is_refused_by_its_name(rest: Rest) -> None:
    """To be passed over it would let out what it hides; in every call that takes settings."""
    name = "snapshot.select.statement.overrides"
    wrong = {**POSTGRES, name: "public.people"}
    for method, path, body in (
        ("POST", "/connectors", {"name": "x", "config": wrong}),
        ("PUT", "/connectors/x/config", wrong),
    ):
        status, response = await rest.call(method, path, body)
        assert status == 400
        assert f"configuration {name}: it is not served" in response["message"]
    _, verdict = await rest.call("PUT", "/connector-plugins/PostgresConnector/config/validate", {"name": "x", **wrong})
    assert [config["value"]["name"] for config in verdict["configs"] if config["value"]["errors"]] == [name]
    assert (await rest.call("GET", "/connectors"))[1] == []


async def test_a_stored_connector_with_such_a_setting_fails_by_name(bus: str) -> None:
    """What an earlier release took does not run; it says which setting it is, and can be deleted. The others run."""
    stored = {
        "old": {**POSTGRES, "name": "old", "snapshot.select.statement.overrides": "public.people"},
        "good": {**GOOD, "name": "good"},
    }
    async with ConnectServer(worker_config(bus)):
        pass  # makes its topics
    async with Producer(bus) as producer:
        for name, config in stored.items():
            value = json.dumps({"properties": config}).encode()
            await producer.send_and_wait("connect-configs", value, f"connector-{name}".encode())
    async with ConnectServer(worker_config(bus, plugin_modules=("tests.support.connectors",))) as server:
        rest = Rest(server.url)
        await rest.wait_for("good", "RUNNING")

        async def failed() -> bool:
            _, response = await rest.call("GET", "/connectors/old/status")
            return response["connector"]["state"] == "FAILED" and not response["tasks"]

        await until(failed)
        _, response = await rest.call("GET", "/connectors/old/status")
        assert "configuration snapshot.select.statement.overrides: it is not served" in response["connector"]["trace"]
        assert (await rest.call("DELETE", "/connectors/old"))[0] == 204
        assert (await rest.call("GET", "/connectors"))[1] == ["good"]
        await rest.http.aclose()
