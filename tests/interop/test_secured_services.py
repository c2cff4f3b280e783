"""Services, dead letters, a registry with https and a Connect worker on a secured Apache Kafka 4.3.1."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from busway import (
    Admin,
    App,
    ConnectionFailed,
    DeadLetters,
    NewTopic,
    Retry,
    SecurityOptions,
    read_to_end,
)
from busway_connect.config import WorkerConfig
from busway_connect.server import ConnectServer
from busway_spark.offsets import Asker
from busway_spark.security import client_security
from tests.support import certificates
from tests.support.certificates import Certificates
from tests.support.connect_worker import Rest
from tests.support.guarded_registry import PASSWORD as REGISTRY_PASSWORD
from tests.support.guarded_registry import USER, guarded_registry
from tests.support.patience import patient
from tests.support.secured_kafka import (
    ERRORS,
    MECHANISMS,
    PASSWORD,
    SecuredKafka,
    as_properties,
    refused_options,
    secured_kafka,
    security,
)
from tests.support.token_endpoint import Endpoint, serving
from tests.support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.slow]

KINDS = [("MUTUAL", "SSL", None), *(("SASL_TLS", "SASL_SSL", mechanism) for mechanism in MECHANISMS)]
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
WORKER = {
    "rest.port": "0",
    "offset.flush.interval.ms": "50",
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
    "plugin.modules": "busway_connect.file_stream",
    "value.converter": "StringConverter",
    "key.converter": "StringConverter",
}


@dataclass
class Order:
    """A record in Avro."""

    number: int


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA for this file's servers and clients."""
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def kafka(authority: Certificates) -> Iterator[SecuredKafka]:
    """One broker for the file."""
    with secured_kafka(authority) as running:
        yield running


@pytest.fixture
def registry_login(authority: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """The password and CA of the registry, in the environment."""
    monkeypatch.setenv("BUSWAY_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO", f"{USER}:{REGISTRY_PASSWORD}")
    monkeypatch.setenv("BUSWAY_SCHEMA_REGISTRY_SSL_CAFILE", authority.ca)


@pytest.mark.usefixtures("registry_login")
@pytest.mark.parametrize(("listener", "protocol", "mechanism"), KINDS)
async def test_a_service_with_a_table_and_dead_letters(
    kafka: SecuredKafka,
    authority: Certificates,
    tmp_path: Path,
    listener: str,
    protocol: str,
    mechanism: str | None,
) -> None:
    """Exactly once, with a table, in Avro: a record that fails becomes a dead letter, is replayed and then handled."""
    where, secured = kafka.address(listener), SecurityOptions(**accepted(authority, protocol, mechanism))
    name = f"orders-{listener}-{mechanism}".lower()
    async with asyncio.timeout(patient(90)), guarded_registry(tmp_path, authority) as registry:
        app = App(name, where, registry, security=secured)
        orders = app.topic(name, key=str, value=Order)
        totals = app.table(f"{name}-totals", key=str, value=int, format="json")
        broken, handled = True, asyncio.Event()

        @app.subscribe(orders, retry=Retry(attempts=1), guarantee="exactly_once")
        async def handle(order: Order) -> None:
            if order.number == 2 and broken:
                raise ValueError("not yet")
            await totals.put("k", totals.get("k", 0) + order.number)
            if order.number == 2:
                handled.set()

        async with app, DeadLetters(where, security=secured) as letters:
            for number in (1, 2, 3):
                await orders.send(Order(number), key="k")

            async def buried() -> bool:
                return any(summary.open for summary in await letters.summaries(await letters.topics(name)))

            await until(buried)
            (topic,) = await letters.topics(name)
            broken = False
            assert len((await letters.replay(topic)).done) == 1
            await handled.wait()
        values = [record.value async for record in read_to_end(where, f"{name}-totals", security=secured)]
        assert values
        assert values[-1] == b"6"


@asynccontextmanager
async def properties_of(options: dict[str, Any]) -> AsyncIterator[dict[str, str]]:
    """Options as a properties file has them; a function for tokens becomes a token endpoint."""
    endpoint = Endpoint()
    if "sasl_oauth_token_provider" in options:
        endpoint.grants(options["sasl_oauth_token_provider"]())
    async with serving(endpoint):
        yield as_properties(options, endpoint.url)


def written(properties: dict[str, str], folder: Path) -> str:
    """Write a properties file; its path."""
    file = folder / "client.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
    return str(file)


async def command(where: str, file: str) -> "subprocess.CompletedProcess[str]":
    """`busway topics list` with a properties file, to its end."""
    words = [sys.executable, "-m", "busway.cli", "topics", "list", "-b", where, "--command-config", file]
    return await asyncio.to_thread(
        subprocess.run, words, capture_output=True, text=True, check=False, timeout=patient(60)
    )


def asker(where: str, topic: str, properties: dict[str, str]) -> Asker:
    """Of Spark's source, with its options."""
    secured = client_security({f"kafka.{name}": text for name, text in properties.items()})
    return Asker(bootstrap_servers=where, topics=(topic,), read_committed=True, security=secured)


def accepted(authority: Certificates, protocol: str, mechanism: str | None) -> dict[str, Any]:
    """Options that the broker accepts, with a client certificate."""
    return security(mechanism, protocol, authority) | {"ssl_certfile": authority.issued(f"client-{mechanism}")}


@pytest.mark.parametrize(("listener", "protocol", "mechanism"), KINDS)
async def test_commands_and_offsets_of_a_spark_source(
    kafka: SecuredKafka, authority: Certificates, tmp_path: Path, listener: str, protocol: str, mechanism: str | None
) -> None:
    """With the same properties: `--command-config` of a command, `kafka.*` options of Spark's source."""
    where, topic = kafka.address(listener), f"listed-{listener}-{mechanism}"
    async with properties_of(accepted(authority, protocol, mechanism)) as properties:
        async with Admin(kafka.address("PLAIN_TEXT")) as admin:
            await admin.create_topics([NewTopic(topic, partitions=1, replication_factor=1)])
        listed = await command(where, written(properties, tmp_path))
        assert listed.returncode == 0, listed.stderr
        assert topic in listed.stdout
        first, last = await asker(where, topic, properties).range()
        assert list(first.values()) == list(last.values()) == [0]


PARTS = ("App", "DeadLetters", "command", "Connect", "Spark")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("error", ERRORS)
async def test_each_error_of_each_part(
    kafka: SecuredKafka, authority: Certificates, tmp_path: Path, error: str, part: str
) -> None:
    """One line that names cause and remedy, without a secret, before anything waits."""
    listener, options, text = refused_options(error, authority)
    where, secured = kafka.address(listener), SecurityOptions(**options)
    async with asyncio.timeout(patient(60)), properties_of(options) as properties:
        if part == "command":
            done = await command(where, written(properties, tmp_path))
            assert done.returncode == 1
            assert len(done.stderr.splitlines()) == 1
            shown = done.stderr
        else:
            with pytest.raises(ConnectionFailed) as refused:
                await attempt(part, where, secured, properties)
            shown = str(refused.value)
    assert re.search(text, shown), shown
    assert "\n" not in shown.strip()
    assert not [secret for secret in (PASSWORD, "wr0ng", "no.token", "cl1ent-s3cret") if secret in shown]


async def attempt(part: str, where: str, secured: SecurityOptions, properties: dict[str, str]) -> None:
    """Connect a part."""
    if part == "App":
        app = App("refused", where, security=secured)

        @app.subscribe(app.topic("refused", key=str, value=str, format="json"))
        async def handle(text: str) -> None: ...

        async with app:
            pass
    elif part == "DeadLetters":
        async with DeadLetters(where, security=secured):
            pass
    elif part == "Connect":
        config = {**properties, "bootstrap.servers": where, "rest.port": "0"}
        async with ConnectServer(WorkerConfig.from_properties(config)):
            pass
    else:
        await asker(where, "t", properties).range()


WORKERS = [
    *((protocol, mechanism, "disabled") for _, protocol, mechanism in KINDS),
    ("SASL_SSL", "SCRAM-SHA-512", "enabled"),
]


@pytest.mark.parametrize(("protocol", "mechanism", "support"), WORKERS)
async def test_a_connect_worker(
    kafka: SecuredKafka, authority: Certificates, tmp_path: Path, protocol: str, mechanism: str | None, support: str
) -> None:
    """A file into a topic and on into another file: storage, producer, consumer and admin clients are secured."""
    where = kafka.address("SASL_TLS" if mechanism else "MUTUAL")
    name = f"connect-{mechanism}-{support}".lower()
    source, sink, topic = tmp_path / "in", tmp_path / "out", f"lines-{name}"
    source.write_text("one\ntwo\n")
    async with Admin(kafka.address("PLAIN_TEXT")) as admin:
        await admin.create_topics([NewTopic(topic, partitions=1, replication_factor=1)])
    async with asyncio.timeout(patient(90)), properties_of(accepted(authority, protocol, mechanism)) as secured:
        properties = (
            secured | WORKER | {"bootstrap.servers": where, "group.id": name, "exactly.once.source.support": support}
        )
        properties |= {f"{kind}.storage.topic": f"{name}-{kind}" for kind in ("config", "offset", "status")}
        if mechanism is not None and mechanism.startswith("SCRAM"):
            properties["producer.sasl.mechanism"] = "SCRAM-SHA-256"
        async with ConnectServer(WorkerConfig.from_properties(properties)) as server:
            rest = Rest(server.url)
            async with rest.http:
                await rest.create("from", connector_class="FileStreamSource", file=str(source), topic=topic)
                await rest.create("to", connector_class="FileStreamSink", file=str(sink), topics=topic)
                await until(lambda: sink.exists() and sink.read_text() == "one\ntwo\n")
                status, _ = await rest.call("PUT", "/connectors/from/stop")
                assert status == 204
                await rest.wait_for("from", None)
                status, answer = await rest.call("DELETE", "/connectors/from/offsets")
                assert status == 200, answer
                paths = ("/connectors/from", "/connectors/to/status", "/connectors")
                answers = [await rest.call("GET", path) for path in paths]
                assert not [secret for secret in (PASSWORD, "cl1ent-s3cret") if secret in str(answers)]


async def test_a_connector_that_is_refused(kafka: SecuredKafka, authority: Certificates, tmp_path: Path) -> None:
    """By its own user: its task is FAILED with the cause, and other connectors go on."""
    (tmp_path / "in").write_text("one\n")
    where = kafka.address("SASL_TLS")
    async with asyncio.timeout(patient(90)), properties_of(accepted(authority, "SASL_SSL", "SCRAM-SHA-512")) as secured:
        properties = secured | WORKER | {"bootstrap.servers": where, "group.id": "connect-refused"}
        async with ConnectServer(WorkerConfig.from_properties(properties)) as server:
            rest = Rest(server.url)
            async with rest.http:
                login = f'{SCRAM} required username="ann" password="wr0ng";'
                config = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in"), "topic": "t"}
                await rest.create("refused", **config, **{"producer.override.sasl.jaas.config": login})
                await rest.wait_for("refused", "FAILED")
                _, answer = await rest.call("GET", "/connectors/refused/status")
                assert "refused the user 'ann' by SCRAM-SHA-512" in answer["tasks"][0]["trace"]
                assert "wr0ng" not in str(answer)
