"""What becomes of records that cannot be dealt with, and of an outside that is away."""

import json
from pathlib import Path

import pytest
from tests.support.connect_worker import Rest, records_of
from tests.support.connectors import CollectingSink, CountingSource
from tests.support.fickle_registry import fickle_registry
from tests.support.waiting import until

from busway import Admin, NewTopic, Producer

PLAIN = {
    "value_converter": "JsonConverter",
    "value_converter_schemas_enable": "false",
    "key_converter": "StringConverter",
}


async def send(bootstrap: str, topic: str, *values: bytes | None) -> None:
    """Records of a topic."""
    async with Producer(bootstrap) as producer:
        for value in values:
            await producer.send(topic, value, b"key")


async def test_a_bad_record_stops_the_task_until_it_is_restarted(rest: Rest, bus: str) -> None:
    """`errors.tolerance=none`: FAILED with the trace; what came before is collected once and nothing behind it."""
    await send(bus, "in", b'{"n":1}', b"{bad", b'{"n":2}')
    await rest.create("strict", connector_class="CollectingSink", topics="in", **PLAIN)
    await rest.wait_for("strict", "FAILED")
    _, response = await rest.call("GET", "/connectors/strict/status")
    assert response["connector"]["state"] == "RUNNING"
    assert "Tolerance exceeded in error handler: the record is not JSON" in response["tasks"][0]["trace"]
    assert {"n": 2} not in CollectingSink.collected.get("strict", [])
    assert (await rest.call("POST", "/connectors/strict/restart?includeTasks=true&onlyFailed=true"))[0] == 202
    await rest.call("PATCH", "/connectors/strict/config", {"errors.tolerance": "all"})
    await until(lambda: _collected("strict", {"n": 2}))
    assert CollectingSink.collected["strict"] == [{"n": 1}, {"n": 2}]


async def _collected(name: str, value: object) -> bool:
    return value in CollectingSink.collected.get(name, [])


async def test_bad_records_go_to_the_dead_letter_topic_with_their_story(rest: Rest, bus: str) -> None:
    """Undecodable and refused records lie there as they were, with Kafka Connect's headers; the others are collected."""
    await send(bus, "in", b'{"n":1}', b"{bad", b'{"n":2}', b'{"n":3}')
    await rest.create(
        "lenient",
        connector_class="CollectingSink",
        topics="in",
        refuses="{'n': 2}",
        errors_tolerance="all",
        errors_deadletterqueue_topic_name="dead",
        errors_deadletterqueue_context_headers_enable="true",
        **PLAIN,
    )
    await until(lambda: _collected("lenient", {"n": 3}))
    assert CollectingSink.collected["lenient"] == [{"n": 1}, {"n": 3}]
    undecodable, refused = await records_of(bus, "dead")
    assert (undecodable.key, undecodable.value, refused.value) == (b"key", b"{bad", b'{"n":2}')
    headers = {name: (value or b"").decode() for name, value in refused.headers}
    trace = headers.pop("__connect.errors.exception.stacktrace")
    assert "RecordRefused" in trace
    assert headers == {
        "__connect.errors.topic": "in",
        "__connect.errors.partition": "0",
        "__connect.errors.offset": "2",
        "__connect.errors.connector.name": "lenient",
        "__connect.errors.task.id": "0",
        "__connect.errors.stage": "TASK_PUT",
        "__connect.errors.class.name": "tests.CollectingSinkConnector",
        "__connect.errors.exception.class.name": "busway_connect.connector.RecordRefused",
        "__connect.errors.exception.message": "{'n': 2} can never be written",
    }
    assert dict(undecodable.headers)["__connect.errors.stage"] == b"VALUE_CONVERTER"


async def test_a_sources_bad_record_goes_there_as_json(rest: Rest, bus: str) -> None:
    """A value that does not fit its schema; those around it arrive."""
    await rest.create(
        "unfit",
        connector_class="CountingSource",
        count="5",
        topics="numbers",
        unfit_at="2",
        errors_tolerance="all",
        errors_deadletterqueue_topic_name="dead",
    )
    await until(lambda: _stored(rest, "unfit", 4))
    numbers = [json.loads(record.value or b"")["payload"]["n"] for record in await records_of(bus, "numbers")]
    assert sorted(numbers) == [0, 0, 1, 3, 3, 4]
    (dead,) = await records_of(bus, "dead")
    assert dead.value is not None
    assert b"no number" in dead.value


async def _stored(rest: Rest, name: str, number: int) -> bool:
    _, response = await rest.call("GET", f"/connectors/{name}/offsets")
    return bool(response["offsets"]) and response["offsets"][0]["offset"]["n"] == number


@pytest.mark.slow
async def test_a_record_that_the_broker_refuses_is_not_lost_behind_those_that_it_takes(rest: Rest, bus: str) -> None:
    """A compacted topic takes no record without a key: the offset stays before it, and once the topic is mended it comes again."""
    async with Admin(bus) as admin:
        await admin.create_topics([NewTopic("even"), NewTopic("odd", configs={"cleanup.policy": "compact"})])
    await rest.create("refused", connector_class="CountingSource", count="1000", topics="even,odd", keyless_at="5")
    await rest.wait_for("refused", "FAILED")
    _, response = await rest.call("GET", "/connectors/refused/offsets")
    assert not response["offsets"] or response["offsets"][0]["offset"]["n"] < 5
    async with Admin(bus) as admin:
        await admin.alter_configs("odd", {"cleanup.policy": "delete"})
    assert (await rest.call("POST", "/connectors/refused/restart?includeTasks=true"))[0] == 202
    await until(lambda: _stored(rest, "refused", 999))
    there = [record for topic in ("even", "odd") for record in await records_of(bus, topic)]
    assert {json.loads(record.value or b"")["payload"]["n"] for record in there} == set(range(1000))


@pytest.mark.slow
async def test_a_source_that_cannot_reach_the_outside_starts_again_by_itself(rest: Rest, bus: str) -> None:
    """`Retriable`: the task goes on behind what it produced, without a person."""
    CountingSource.failed.discard("away")
    CountingSource.committed_offsets.pop("away", None)
    await rest.create("away", connector_class="CountingSource", count="200", topics="numbers", fails_at="120")
    await until(lambda: _stored(rest, "away", 199))
    numbers = [json.loads(record.value or b"")["payload"]["n"] for record in await records_of(bus, "numbers")]
    assert len(numbers) == sum(2 if number % 3 == 0 else 1 for number in range(200))
    committed = CountingSource.committed_offsets["away"]
    assert committed == sorted(committed)
    assert committed[-1] == 199
    assert (
        'busway_connect_task_restarts_total{connector="away",type="source"} 1.0'
        in (await rest.http.get("/metrics")).text
    )


async def test_a_sink_is_tried_again_in_place(rest: Rest, bus: str) -> None:
    """`errors.retry.timeout`: the records wait while the outside is away, and the task does not even restart."""
    CollectingSink.away.pop("patient", None)
    await send(bus, "in", b'{"n":1}', b'{"n":2}')
    await rest.create(
        "patient", connector_class="CollectingSink", topics="in", away_times="1", errors_retry_timeout="10000", **PLAIN
    )
    await until(lambda: _collected("patient", {"n": 2}))
    assert CollectingSink.collected["patient"] == [{"n": 1}, {"n": 2}]
    assert (
        'busway_connect_task_restarts_total{connector="patient",type="sink"} 0.0'
        in (await rest.http.get("/metrics")).text
    )


async def test_any_other_failure_waits_for_a_person(rest: Rest, bus: str) -> None:
    """FAILED with what the connector raised; what was read before is stored."""
    await rest.create("broken", connector_class="CountingSource", count="10", topics="numbers", breaks_at="5")
    await rest.wait_for("broken", "FAILED")
    _, response = await rest.call("GET", "/connectors/broken/tasks/0/status")
    assert "breaks.at: this number cannot be" in response["trace"]
    assert await _stored(rest, "broken", 4)
    await rest.call("PATCH", "/connectors/broken/config", {"breaks.at": None})
    await until(lambda: _stored(rest, "broken", 9))


async def test_a_record_that_is_too_large_leaves_no_hole(rest: Rest, bus: str, tmp_path: Path) -> None:
    """The task stops before what lies behind it; after the topic's limit is raised, all is there once and in order."""
    async with Admin(bus) as admin:
        await admin.create_topics([NewTopic("lines", partitions=1, configs={"max.message.bytes": "2000"})])
        lines = ["first", "x" * 3000, "last"]
        source = tmp_path / "in.txt"
        source.write_text("".join(f"{line}\n" for line in lines))
        await rest.create(
            "large",
            connector_class="FileStreamSource",
            file=str(source),
            topic="lines",
            value_converter="StringConverter",
        )
        await rest.wait_for("large", "FAILED")
        _, response = await rest.call("GET", "/connectors/large/tasks/0/status")
        assert "larger than max.message.bytes of lines, 2000; raise it" in response["trace"]
        await admin.alter_configs("lines", {"max.message.bytes": "10000"})
    assert (await rest.call("POST", "/connectors/large/tasks/0/restart"))[0] == 204
    await until(lambda: _lines(bus, 3))
    assert [(record.value or b"").decode() for record in await records_of(bus, "lines")] == lines


async def _lines(bootstrap: str, count: int) -> bool:
    return len(await records_of(bootstrap, "lines")) >= count


async def test_a_dead_letter_that_is_too_large_goes_without_its_value(rest: Rest, bus: str) -> None:
    """With its headers a record may be larger than the topic takes: its place stands in the headers, and nothing stops behind it."""
    async with Admin(bus) as admin:
        limits = {"max.message.bytes": "3000"}
        await admin.create_topics(
            [NewTopic("in"), NewTopic("dead", configs=limits), NewTopic("tiny", configs={"max.message.bytes": "1000"})]
        )
    await send(bus, "in", b"{bad" + b"x" * 2900, b'{"n":1}')
    settings = {"errors_tolerance": "all", "errors_deadletterqueue_context_headers_enable": "true", **PLAIN}
    for name, topic in (("huge", "dead"), ("tiny", "tiny")):
        await rest.create(
            name, connector_class="CollectingSink", topics="in", errors_deadletterqueue_topic_name=topic, **settings
        )
        await until(lambda name=name: _collected(name, {"n": 1}))
        (dead,) = await records_of(bus, topic)
        headers = dict(dead.headers)
        assert (dead.value, headers["__connect.errors.offset"]) == (None, b"0")
        assert (
            headers["__busway.errors.left.out"]
            == b"the value of 2904 bytes, as the record would be larger than the topic takes"
        )


async def test_the_dead_letter_topic_is_made(rest: Rest, bus: str) -> None:
    """Before the first bad record, also where the brokers make none by themselves: one partition, as Kafka Connect makes it."""
    await send(bus, "in", b"{}")
    await rest.create(
        "making",
        connector_class="CollectingSink",
        topics="in",
        errors_tolerance="all",
        errors_deadletterqueue_topic_name="dead",
        errors_deadletterqueue_topic_replication_factor="1",
        **PLAIN,
    )
    await rest.wait_for("making", "RUNNING")
    async with Admin(bus) as admin:
        assert len((await admin.describe_topics(["dead"]))["dead"].partitions) == 1


async def test_a_row_larger_than_a_producers_usual_limit_goes_with_an_override(
    rest: Rest, bus: str, tmp_path: Path
) -> None:
    """`producer.override.max.request.size`, as in Kafka Connect."""
    async with Admin(bus) as admin:
        await admin.create_topics([NewTopic("lines", partitions=1, configs={"max.message.bytes": "3000000"})])
    source = tmp_path / "in.txt"
    source.write_text("x" * 2_000_000 + "\n")
    settings = {
        "connector_class": "FileStreamSource",
        "file": str(source),
        "topic": "lines",
        "value_converter": "StringConverter",
    }
    await rest.create("large", **settings)
    await rest.wait_for("large", "FAILED")
    _, response = await rest.call("GET", "/connectors/large/tasks/0/status")
    assert "larger than producer.override.max.request.size, 1048576; raise it" in response["trace"]
    assert (await rest.call("PATCH", "/connectors/large/config", {"producer.override.max.request.size": "4000000"}))[
        0
    ] == 200
    await until(lambda: _lines(bus, 1))


async def test_overrides_that_cannot_be_are_named(rest: Rest) -> None:
    """Before anything is made of them."""
    for name, value in [
        ("producer.override.max.request.size", "many"),
        ("producer.override.compression.type", "rar"),
        ("consumer.override.max.poll.records", "0"),
    ]:
        config = {"connector.class": "CollectingSink", "topics": "in", name: value}
        status, response = await rest.call("PUT", "/connectors/x/config", config)
        assert status == 400
        assert f"Invalid value {value} for configuration {name}" in response["message"]


@pytest.mark.slow
async def test_a_registry_that_is_away_is_no_fault_of_a_record(rest: Rest, bus: str, tmp_path: Path) -> None:
    """Under `errors.tolerance=all`, a source with a new schema and a sink with an unknown id wait: nothing is passed over or put aside."""
    CollectingSink.collected.pop("to", None)
    async with fickle_registry(tmp_path) as registry:
        both = {
            "errors_tolerance": "all",
            "errors_deadletterqueue_topic_name": "dead",
            "key_converter": "AvroConverter",
            "key_converter_schema_registry_url": registry.url,
            "value_converter": "AvroConverter",
            "value_converter_schema_registry_url": registry.url,
        }
        await registry.stop()
        await rest.create("from", connector_class="CountingSource", count="5", topics="numbers", **both)
        await rest.wait_for("from", "RESTARTING")
        await registry.start()
        await until(lambda: _stored(rest, "from", 4))
        await registry.stop()
        await rest.create("to", connector_class="CollectingSink", topics="numbers", **both)
        await rest.wait_for("to", "RESTARTING")
        await registry.start()
        await until(lambda: _collected("to", {"n": 4}))
    assert [value["n"] for value in CollectingSink.collected["to"]] == [0, 0, 1, 2, 3, 3, 4]
    assert await records_of(bus, "dead") == []


async def test_a_sink_that_begins_at_the_end_commits_where_that_was(rest: Rest, bus: str) -> None:
    """`latest`: what comes while it is stopped is written afterwards, although it had not been handed a record."""
    await send(bus, "in", b'{"n":1}')
    override = {"consumer_override_auto_offset_reset": "latest"}
    await rest.create("late", connector_class="CollectingSink", topics="in", **PLAIN, **override)

    async def committed() -> bool:
        _, answer = await rest.call("GET", "/connectors/late/offsets")
        return [entry["offset"] for entry in answer["offsets"]] == [{"kafka_offset": 1}]

    await until(committed)
    await rest.call("PUT", "/connectors/late/stop")
    await rest.wait_for("late", None)
    await send(bus, "in", b'{"n":2}')
    await rest.call("PUT", "/connectors/late/resume")
    await until(lambda: _collected("late", {"n": 2}))
    assert CollectingSink.collected["late"] == [{"n": 2}]
