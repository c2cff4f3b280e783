"""Services, dead letters, a registry with https and a Connect worker on a secured Apache Kafka 4.3.1."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from busway import (
    Admin,
    App,
    AuthenticationFailed,
    ConnectionFailed,
    DeadLetters,
    NewTopic,
    Retry,
    SecurityOptions,
    read_to_end,
)
from busway_connect.config import BadSetting, WorkerConfig
from busway_connect.server import ConnectServer
from tests.support import certificates
from tests.support.certificates import Certificates
from tests.support.connect_worker import Rest
from tests.support.guarded_registry import PASSWORD as REGISTRY_PASSWORD
from tests.support.guarded_registry import USER, guarded_registry
from tests.support.patience import patient
from tests.support.secured_kafka import MECHANISMS, PASSWORD, SecuredKafka, secured_kafka, security
from tests.support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.slow]

KINDS = [("MUTUAL", "SSL", None), *(("SASL_TLS", "SASL_SSL", mechanism) for mechanism in MECHANISMS)]
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


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


def options(authority: Certificates, protocol: str, mechanism: str | None) -> SecurityOptions:
    """Options that the broker accepts, with a client certificate."""
    given: dict[str, Any] = security(mechanism, protocol, authority)
    return SecurityOptions(**given, ssl_certfile=authority.issued(f"client-{mechanism}"))


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
    where, secured = kafka.address(listener), options(authority, protocol, mechanism)
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


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_service_with_a_wrong_password(kafka: SecuredKafka, authority: Certificates, mechanism: str) -> None:
    """Its start raises the refusal, and so do dead letters; neither text has the password."""
    given = security(mechanism, "SASL_SSL", authority) | {"sasl_plain_password": "wr0ng"}
    secured = SecurityOptions(**given)
    app = App("refused", kafka.address("SASL_TLS"), security=secured)
    topic = app.topic("refused", key=str, value=str, format="json")

    @app.subscribe(topic)
    async def handle(text: str) -> None: ...

    for client in (app, DeadLetters(kafka.address("SASL_TLS"), security=secured)):
        with pytest.raises(AuthenticationFailed, match=f"refused the user 'ann' by {mechanism}") as refused:
            async with asyncio.timeout(patient(30)), client:
                pass
        assert "wr0ng" not in str(refused.value)


def worker_properties(authority: Certificates, where: str, password: str = PASSWORD) -> dict[str, str]:
    """A worker's settings as Kafka Connect has them; its storage by SCRAM-SHA-512, its sources by SCRAM-SHA-256."""
    return {
        "bootstrap.servers": where,
        "rest.port": "0",
        "offset.flush.interval.ms": "50",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "plugin.modules": "busway_connect.file_stream",
        "value.converter": "StringConverter",
        "key.converter": "StringConverter",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.ca,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM} required username="ann" password="{password}";',
        "producer.sasl.mechanism": "SCRAM-SHA-256",
    }


@pytest.mark.parametrize("support", ["disabled", "enabled"])
async def test_a_connect_worker(kafka: SecuredKafka, authority: Certificates, tmp_path: Path, support: str) -> None:
    """A file into a topic and on into another file: storage, producer, consumer and admin clients are secured."""
    where = kafka.address("SASL_TLS")
    properties = worker_properties(authority, where) | {
        "group.id": f"connect-{support}",
        "exactly.once.source.support": support,
        **{f"{kind}.storage.topic": f"connect-{support}-{kind}" for kind in ("config", "offset", "status")},
    }
    source, sink, topic = tmp_path / "in", tmp_path / "out", f"lines-{support}"
    source.write_text("one\ntwo\n")
    async with Admin(where, **security("PLAIN", "SASL_SSL", authority)) as admin:
        await admin.create_topics([NewTopic(topic, partitions=1, replication_factor=1)])
    async with asyncio.timeout(patient(90)), ConnectServer(WorkerConfig.from_properties(properties)) as server:
        rest = Rest(server.url)
        async with rest.http:
            await rest.create("from", connector_class="FileStreamSource", file=str(source), topic=topic)
            await rest.create("to", connector_class="FileStreamSink", file=str(sink), topics=topic)
            await until(lambda: sink.exists() and sink.read_text() == "one\ntwo\n")
            answers = [
                await rest.call("GET", path) for path in ("/connectors/from", "/connectors/from/status", "/connectors")
            ]
            assert PASSWORD not in str(answers)
            status, _ = await rest.call("PUT", "/connectors/from/stop")
            assert status == 204
            await rest.wait_for("from", None)
            status, answer = await rest.call("DELETE", "/connectors/from/offsets")
            assert status == 200, answer
            wrong = {"producer.override.sasl.jaas.config": f'{SCRAM} required username="ann" password="wr0ng";'}
            config = {"connector.class": "FileStreamSource", "file": str(source), "topic": topic, **wrong}
            await rest.create("refused", **config)
            await until(lambda: failed(rest, "refused"))
            _, status_of = await rest.call("GET", "/connectors/refused/status")
            trace = status_of["tasks"][0]["trace"]
            assert "refused the user 'ann' by SCRAM-SHA-256" in trace
            assert "wr0ng" not in trace


async def failed(rest: Rest, name: str) -> bool:
    """Whether the connector's task failed."""
    return await rest.task_state(name) == "FAILED"


@pytest.mark.parametrize(
    ("changed", "problem", "text"),
    [
        ({"sasl.mechanism": "PLAIN"}, AuthenticationFailed, "refused the user 'ann' by PLAIN"),
        ({"ssl.truststore.location": "OTHER"}, AuthenticationFailed, "is from a CA that is not trusted here"),
        ({"security.protocol": "SASL_PLAINTEXT"}, BadSetting, "has no TLS"),
    ],
)
async def test_a_connect_worker_that_is_refused(
    kafka: SecuredKafka,
    authority: Certificates,
    changed: dict[str, str],
    problem: type[Exception],
    text: str,
) -> None:
    """Its start raises the cause."""
    changed = {name: authority.other_ca if value == "OTHER" else value for name, value in changed.items()}
    properties = worker_properties(authority, kafka.address("SASL_TLS"), "wr0ng") | changed
    with pytest.raises(problem, match=text) as refused:
        async with ConnectServer(WorkerConfig.from_properties(properties)):
            pass
    assert "wr0ng" not in str(refused.value)


async def test_a_connect_worker_in_plain_text_on_a_tls_port(kafka: SecuredKafka) -> None:
    """The text says what the port may expect."""
    config = WorkerConfig.from_properties({"bootstrap.servers": kafka.address("TLS"), "rest.port": "0"})
    with pytest.raises(ConnectionFailed, match="set security_protocol to SSL or SASL_SSL"):
        async with ConnectServer(config):
            pass
