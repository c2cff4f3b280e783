"""A worker on the real bus: what outlives it, what it refuses, files and tables from end to end."""

import dataclasses
import json
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from tests.support.connect_worker import Rest, records_of, worker_config
from tests.support.waiting import until

from busway import Admin, App, NewTopic, Producer
from busway.net.listening import CannotListen
from busway_connect.config import BadSetting, WorkerConfig
from busway_connect.runtime.storage import StorageUnfit
from busway_connect.runtime.worker import Worker
from busway_connect.server import ConnectServer

FILE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


async def test_lines_of_a_file_reach_another_file(rest: Rest, bus: str, tmp_path: Path) -> None:
    """Kafka's example, source to sink; lines that are added come too, and an unfinished one waits for its end."""
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\ntwo\nhal")
    await rest.create("from", connector_class=FILE, file=str(source), topic="lines")
    await rest.create("to", connector_class="FileStreamSink", file=str(sink), topics="lines")
    await until(lambda: _holds(sink, "one\ntwo\n"))
    with source.open("a") as more:
        more.write("f\nthree\n")
    await until(lambda: _holds(sink, "one\ntwo\nhalf\nthree\n"))
    assert (await rest.call("GET", "/connectors/to/topics"))[1] == {"to": {"topics": ["lines"]}}


async def _holds(path: Path, content: str) -> bool:
    return path.exists() and path.read_text() == content


async def test_all_of_it_outlives_the_worker(bus: str, tmp_path: Path) -> None:
    """Settings, a pause and offsets are there for the next worker."""
    source = tmp_path / "in.txt"
    source.write_text("one\n")
    config = {"connector.class": FILE, "file": str(source), "topic": "lines", "name": "kept"}
    async with ConnectServer(worker_config(bus)) as server:
        rest = Rest(server.url)
        await rest.call("POST", "/connectors", {"name": "kept", "config": config})
        await until(lambda: _at(rest, 4))
        assert (await rest.call("PUT", "/connectors/kept/pause"))[0] == 202
        await rest.http.aclose()
    source.write_text("one\ntwo\n")
    async with ConnectServer(worker_config(bus)) as server:
        rest = Rest(server.url)
        assert (await rest.call("GET", "/connectors/kept/config"))[1] == config
        await rest.wait_for("kept", "PAUSED")
        assert await _at(rest, 4)
        await rest.call("PUT", "/connectors/kept/resume")
        await until(lambda: _at(rest, 8))
        await rest.http.aclose()
    assert len(await records_of(bus, "lines")) == 2


async def _at(rest: Rest, position: int) -> bool:
    _, response = await rest.call("GET", "/connectors/kept/offsets")
    return bool(response["offsets"]) and response["offsets"][0]["offset"] == {"position": position}


async def test_what_is_stored_has_kafka_connects_formats(rest: Rest, bus: str, tmp_path: Path) -> None:
    """Keys and values of the three topics, as Kafka Connect 4.3.1 writes them."""
    source = tmp_path / "in.txt"
    source.write_text("one\n")
    await rest.create("kept", connector_class=FILE, file=str(source), topic="lines")
    await until(lambda: _at(rest, 4))
    await rest.call("PUT", "/connectors/kept/stop")
    await rest.wait_for("kept", None)
    configs = {record.key: record.value for record in await records_of(bus, "connect-configs")}
    assert configs[b"target-state-kept"] == b'{"state":"PAUSED","state.v2":"STOPPED"}'
    assert json.loads(configs[b"connector-kept"] or b"")["properties"]["topic"] == "lines"
    assert configs[b"commit-kept"] in {b'{"tasks":1}', b'{"tasks":0}'}
    offsets = {record.key: record.value for record in await records_of(bus, "connect-offsets")}
    assert offsets == {f'["kept",{{"filename":"{source}"}}]'.encode(): b'{"position":4}'}
    statuses = {record.key: record.value for record in await records_of(bus, "connect-status")}
    status = json.loads(statuses[b"status-connector-kept"] or b"")
    assert status.keys() == {"state", "trace", "worker_id", "generation", "version"}
    assert json.loads(statuses[b"status-topic-lines:connector-kept"] or b"")["topic"].keys() == {
        "name",
        "connector",
        "task",
        "discoverTimestamp",
    }


async def test_deleted_and_made_again_it_goes_on_where_it_ended(rest: Rest, bus: str, tmp_path: Path) -> None:
    """As in Kafka Connect, a connector's offsets outlive it."""
    source = tmp_path / "in.txt"
    source.write_text("one\n")
    for _ in range(2):
        await rest.create("kept", connector_class=FILE, file=str(source), topic="lines")
        await until(lambda: _at(rest, 4))
        await rest.wait_for("kept", "RUNNING")
        assert (await rest.call("DELETE", "/connectors/kept"))[0] == 204
        assert (await rest.call("GET", "/connectors/kept"))[0] == 404
    assert len(await records_of(bus, "lines")) == 1


async def test_transforms_and_avro_and_a_table(tmp_path: Path) -> None:
    """A typed app's records → Avro by the registry → renamed and routed → upserted rows in SQLite."""

    @dataclasses.dataclass(frozen=True)
    class Order:
        number: int
        total: float
        note: str | None = None

    app = App("orders")
    orders = app.topic("shop.orders", key=str, value=Order, format="avro")
    database = f"sqlite:///{tmp_path / 'sink.db'}"
    async with app.test() as bus:
        await bus.send(orders, Order(1, 5.0), key="a")
        await bus.send(orders, Order(1, 6.5, "gift"), key="a")
        await bus.send(orders, Order(2, 7.0), key="b")
        async with ConnectServer(worker_config(app.bootstrap_servers)) as server:
            rest = Rest(server.url)
            config = {
                "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
                "topics": "shop.orders",
                "connection.url": database,
                "insert.mode": "upsert",
                "pk.mode": "record_value",
                "pk.fields": "id",
                "auto.create": "true",
                "key.converter": "StringConverter",
                "value.converter": "AvroConverter",
                "value.converter.schema.registry.url": str(app.schema_registry),
                "transforms": "rename,route",
                "transforms.rename.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
                "transforms.rename.renames": "number:id",
                "transforms.route.type": "RegexRouter",
                "transforms.route.regex": "shop\\.(.*)",
                "transforms.route.replacement": "all_$1",
            }
            status, response = await rest.call("POST", "/connectors", {"name": "sink", "config": config})
            assert status == 201, response
            await until(lambda: _committed(rest, 3))
            await rest.http.aclose()
    engine = create_engine(database)
    with engine.connect() as connection:
        rows = [dict(row) for row in connection.execute(text("SELECT * FROM all_orders ORDER BY id")).mappings()]
    engine.dispose()
    assert rows == [{"id": 1, "total": 6.5, "note": "gift"}, {"id": 2, "total": 7.0, "note": None}]


async def _committed(rest: Rest, count: int) -> bool:
    _, response = await rest.call("GET", "/connectors/sink/offsets")
    return sum(entry["offset"]["kafka_offset"] for entry in response["offsets"]) == count


async def test_storage_topics_that_cannot_be_used_are_named(bus: str) -> None:
    """Several partitions for the configs, or a topic whose records are deleted in time."""
    async with Admin(bus) as admin:
        await admin.create_topics([NewTopic("three", partitions=3), NewTopic("timed", partitions=1)])
    with pytest.raises(StorageUnfit, match=r"three .* has 3 partitions and needs exactly one"):
        await ConnectServer(worker_config(bus, config_storage_topic="three")).start()
    with pytest.raises(StorageUnfit, match=r"timed has cleanup\.policy=delete"):
        await ConnectServer(worker_config(bus, offset_storage_topic="timed")).start()


async def test_a_port_that_is_taken_is_named(rest: Rest, bus: str) -> None:
    """With what to do."""
    port = int(rest.url.rpartition(":")[2])
    with pytest.raises(CannotListen, match=f"cannot listen on 127.0.0.1:{port}"):
        await ConnectServer(dataclasses.replace(worker_config(bus), port=port)).start()


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"rest.port": "many"}, "rest.port is a number"),
        ({"listeners": "https://here"}, "listeners is http://HOST:PORT"),
        ({"rest.host.name": "0.0.0.0"}, "no authentication"),
        ({"offset.storage.topic": "connect-configs"}, "three topics"),
        ({"offset.flush.interval.ms": "0"}, "offset.flush.interval.ms is above 0"),
    ],
)
def test_worker_settings_that_cannot_be_are_named(properties: dict[str, str], says: str) -> None:
    """By Kafka Connect's names."""
    with pytest.raises(BadSetting, match=says):
        WorkerConfig.from_properties(properties)


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        (
            {"value.converter": "No.Such"},
            "Invalid value No.Such for configuration value.converter: Class No.Such could not",
        ),
        ({"key.converter.schemas.enabel": "false"}, "configuration key.converter.schemas.enabel: it is not served"),
        ({"value.converter": "AvroConverter"}, "Missing required configuration .value.converter.schema.registry.url."),
        ({"value.converterschemas": "x"}, "configuration value.converterschemas: it is none of"),
    ],
)
def test_the_workers_converters_are_judged_as_a_connectors(properties: dict[str, str], says: str) -> None:
    """At the start, and not when a connector that relies on them fails."""
    with pytest.raises(BadSetting, match=says):
        Worker(WorkerConfig.from_properties(properties), "here:1")


@pytest.mark.slow
async def test_topics_that_match_come_also_later(rest: Rest, bus: str, tmp_path: Path) -> None:
    """`topics.regex`: a topic that is made after the sink has started is read from its first record."""
    sink = tmp_path / "out.txt"
    config = {
        "connector.class": "FileStreamSink",
        "file": str(sink),
        "topics.regex": "log-.*",
        "value.converter": "StringConverter",
        "consumer.override.metadata.max.age.ms": "100",
    }
    await rest.call("POST", "/connectors", {"name": "all", "config": config})
    await rest.wait_for("all", "RUNNING")
    async with Producer(bus) as producer:
        await producer.send_and_wait("log-a", b"one")
        await until(lambda: _holds(sink, "one\n"))
        await producer.send_and_wait("other", b"no")
        await producer.send_and_wait("log-b", b"two")
        await until(lambda: _holds(sink, "one\ntwo\n"))


async def test_what_is_said_of_settings_holds_no_password(rest: Rest) -> None:
    """Neither a refusal nor the validate call; the connector's own config is shown as it is, as in Kafka Connect."""
    secrets = {
        "connection.url": "mysql://me:s3cret@host/shop",
        "connection.password": "s3cret",
        "value.converter.basic.auth.user.info": "me:s3cret",
        "consumer.override.sasl.jaas.config": 'password="s3cret"',
    }
    status, response = await rest.call("POST", "/connectors", {"name": "sink", "config": secrets})
    assert status == 400
    assert "connection.url=mysql://me:[hidden]@host/shop, connection.password=[hidden]" in response["message"]
    assert "s3cret" not in response["message"]
    config = {**secrets, "name": "sink", "connector.class": "JdbcSink", "topics": "t"}
    status, response = await rest.call("POST", "/connectors", {"name": "sink", "config": config})
    assert status == 400
    assert "names mysql; served are" in response["message"]
    assert "s3cret" not in response["message"]
    status, response = await rest.call("PUT", "/connector-plugins/JdbcSink/config/validate", config)
    assert status == 200
    assert "s3cret" not in json.dumps(response)


async def test_a_password_from_a_file_is_nowhere_else(bus: str, tmp_path: Path) -> None:
    """The task has its value; requests, answers and the topics have the reference."""
    (tmp_path / "secrets").write_text("how.far=5\n")
    providers = {
        "config.providers": "file",
        "config.providers.file.class": "FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(tmp_path),
    }
    config = worker_config(bus, plugin_modules=("tests.support.connectors",), providers=providers)
    reference = f"${{file:{tmp_path / 'secrets'}:how.far}}"
    async with ConnectServer(config) as server:
        rest = Rest(server.url)
        await rest.create("x", connector_class="CountingSource", topics="numbers", count=reference)
        await until(lambda: _produced(bus, 7))
        assert (await rest.call("GET", "/connectors/x/config"))[1]["count"] == reference
        assert (await rest.call("GET", "/connectors/x/tasks"))[1][0]["config"]["count"] == reference
        status, response = await rest.call("PATCH", "/connectors/x/config", {"count": reference.replace("far", "near")})
        assert (status, "count: the file" in response["message"]) == (400, True)
        await rest.http.aclose()
    stored = b"".join(record.value or b"" for record in await records_of(bus, "connect-configs"))
    assert reference.encode() in stored


async def _produced(bootstrap: str, count: int) -> bool:
    return len(await records_of(bootstrap, "numbers")) == count


async def test_files_of_the_worker_are_nobodys_without_its_word(bus: str) -> None:
    """Kafka's file connectors are there only if the worker's settings name them; who asks for one learns how."""
    config = dataclasses.replace(worker_config(bus), plugin_modules=())
    async with ConnectServer(config) as server:
        rest = Rest(server.url)
        body = {"name": "x", "config": {"connector.class": FILE, "file": "/etc/passwd", "topic": "t"}}
        status, response = await rest.call("POST", "/connectors", body)
        assert status == 400
        assert "plugin.modules=busway_connect.file_stream" in response["message"]
        await rest.http.aclose()
