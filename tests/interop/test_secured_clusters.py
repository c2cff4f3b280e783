"""The SDK's clients on a secured Apache Kafka 4.3.1: each mechanism, and each cause of a refusal."""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from busway import (
    Admin,
    App,
    AuthenticationFailed,
    ConnectionFailed,
    Consumer,
    Producer,
    SecurityOptions,
    ShareConsumer,
)
from busway.admin.new_topic import NewTopic
from busway.cli.check import check_app
from busway.cli.cluster_checks import check_cluster
from busway.cli.progress import read_ends, read_groups
from tests.support import certificates
from tests.support.apache_kafka import java
from tests.support.certificates import Certificates
from tests.support.patience import patient
from tests.support.secured_kafka import (
    LISTENERS,
    MECHANISMS,
    PASSWORD,
    REFUSED,
    SESSION_MS,
    WRONG_PORTS,
    SecuredKafka,
    secured_kafka,
    security,
    token,
)

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA for this file's broker and clients."""
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def a_patient_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine an answer takes longer."""
    monkeypatch.setattr("busway.cli.cluster_checks._TIMEOUT_S", patient(30))


@pytest.fixture(scope="module")
def kafka(authority: Certificates) -> Iterator[SecuredKafka]:
    """One broker for the file, with a user."""
    with secured_kafka(authority) as running:
        yield running


ACCEPTED = [
    ("TLS", "SSL", None),
    ("MUTUAL", "SSL", None),
    ("SASL", "SASL_PLAINTEXT", "PLAIN"),
    ("SASL", "SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL", "SASL_PLAINTEXT", "SCRAM-SHA-512"),
    *(("SASL_TLS", "SASL_SSL", mechanism) for mechanism in MECHANISMS),
]


@pytest.mark.slow
@pytest.mark.parametrize(("listener", "protocol", "mechanism"), ACCEPTED)
async def test_every_client_with_every_mechanism(
    kafka: SecuredKafka, authority: Certificates, listener: str, protocol: str, mechanism: str | None
) -> None:
    """A topic is made, a transaction written, read by a group and by a share group."""
    where = kafka.address(listener)
    options = security(mechanism, protocol, authority)
    if listener == "MUTUAL":
        options["ssl_certfile"] = authority.issued("client-mutual", password=certificates.PASSWORD)
        options["ssl_password"] = certificates.PASSWORD
    topic = f"secured-{listener}-{mechanism}"
    async with asyncio.timeout(patient(60)):
        async with Admin(where, **options) as admin:
            await admin.create_topics([NewTopic(topic, partitions=1, replication_factor=1)])
        async with Producer(where, transactional_id=topic, **options) as producer, producer.transaction():
            await producer.send(topic, b"1")
        async with Consumer(
            topic, bootstrap_servers=where, group_id=topic, auto_offset_reset="earliest", **options
        ) as consumer:
            assert (await anext(aiter(consumer))).value == b"1"
        async with ShareConsumer(topic, bootstrap_servers=where, group_id=f"{topic}-share", **options) as shared:
            await shared.getmany(timeout_ms=100)


@pytest.mark.slow
@pytest.mark.parametrize(("listener", "changed", "text"), REFUSED)
async def test_each_refusal_is_one_line_with_cause_and_remedy(
    kafka: SecuredKafka, authority: Certificates, listener: str, changed: dict[str, Any], text: str
) -> None:
    """Of each client, at its start, without a secret."""
    protocol = LISTENERS[listener]
    options = security("PLAIN" if "sasl_mechanism" in changed else None, protocol, authority) | changed
    where = kafka.address(listener)
    for client in (
        Admin(where, **options),
        Producer(where, **options),
        Consumer("t", bootstrap_servers=where, group_id="g", **options),
        ShareConsumer("t", bootstrap_servers=where, group_id="s", **options),
    ):
        with pytest.raises(AuthenticationFailed, match=text) as refused:
            await client.start()
        shown = str(refused.value)
        assert "\n" not in shown
        assert not any(secret in shown for secret in (PASSWORD, "wr0ng", "no.token"))
    (finding,) = (await check_cluster(where, SecurityOptions(**options))).findings
    assert (finding.level, re.search(text, finding.text) is not None) == ("problem", True)


@pytest.mark.slow
@pytest.mark.parametrize(("listener", "protocol", "text"), WRONG_PORTS)
async def test_the_wrong_protocol_for_a_port(
    kafka: SecuredKafka, authority: Certificates, listener: str, protocol: str, text: str
) -> None:
    """Kafka's broker closes the connection; the text says what the port may expect."""
    with pytest.raises(ConnectionFailed, match=text) as refused:
        await Admin(kafka.address(listener), **security(None, protocol, authority)).start()
    assert "\n" not in str(refused.value)
    options = SecurityOptions(**security(None, protocol, authority))
    (finding,) = (await check_cluster(kafka.address(listener), options)).findings
    assert (finding.level, re.search(text, finding.text) is not None) == ("problem", True)


@pytest.mark.slow
@pytest.mark.parametrize("listener", ["PLAIN_TEXT", "TLS", "SASL_TLS"])
async def test_doctor_status_and_check_on_a_cluster_in_order(
    kafka: SecuredKafka, authority: Certificates, listener: str
) -> None:
    """No finding of `busway doctor` but those that are in order, its controller's clock with them; `busway status` reads it."""
    options = security("PLAIN" if "SASL" in listener else None, LISTENERS[listener], authority)
    checks = await check_cluster(kafka.address(listener), SecurityOptions(**options))
    assert [finding for finding in checks.findings if finding.level != "ok"] == []
    assert [finding.subject.split()[0] for finding in checks.findings] == [
        "bootstrap",
        "controller",
        "broker",
        "partitions",
    ]
    async with Admin(kafka.address(listener), **options) as admin:
        topics = await admin.describe_topics()
        ends = await read_ends(admin, topics.values())
        assert {partition.topic for partition in ends} == set(topics)
        groups = await read_groups(admin, ends)
    assert {group.kind for group in groups} <= {"classic", "consumer", "share"}
    app = App("checked", kafka.address(listener), security=SecurityOptions(**options))
    app.topic("checked.new", value=dict, format="json", partitions=2, configs={"retention.ms": "1000"})
    app.topic("checked.refused", value=dict, format="json", configs={"retention.ms": "soon"})
    assert [(finding.subject, finding.level) for finding in await check_app(app)] == [
        ("topic checked.new", "ok"),
        ("topic checked.refused", "problem"),
    ]


@pytest.mark.slow
async def test_sessions_are_renewed_under_load(kafka: SecuredKafka, authority: Certificates) -> None:
    """Kafka's broker ends a connection whose session is over; none is, and each record comes once."""
    where, topic = kafka.address("SHORT"), "short-sessions"
    options = security("PLAIN", "SASL_PLAINTEXT", authority)
    async with Admin(where, **options) as admin:
        await admin.create_topics([NewTopic(topic, partitions=1, replication_factor=1)])
    async with Producer(where, linger_ms=0, **options) as producer:
        sent, begun = 0, time.monotonic()
        connection = await producer._cluster.connection(1)
        while time.monotonic() - begun < 3 * SESSION_MS / 1000:
            waiters = [await producer.send(topic, str(sent + number).encode()) for number in range(20)]
            await asyncio.gather(*waiters)
            sent += len(waiters)
        assert await producer._cluster.connection(1) is connection, "the connection was never lost"
    async with Consumer(topic, bootstrap_servers=where, auto_offset_reset="earliest", **options) as consumer:
        async with asyncio.timeout(patient(30)):
            read = [int((await anext(aiter(consumer))).value or b"") for _ in range(sent)]
    assert read == list(range(sent))


@pytest.mark.slow
@pytest.mark.parametrize("group", [None, "refused-later"])
async def test_a_running_consumer_raises_a_refusal(
    kafka: SecuredKafka, authority: Certificates, group: str | None
) -> None:
    """Its token is over, and the next one is refused: the poll raises it, as Java's does, instead of trying for ever."""
    where, topic = kafka.address("SASL_TLS"), f"refused-{group}"
    options = security("OAUTHBEARER", "SASL_SSL", authority)
    async with Admin(where, **options) as admin:
        await admin.create_topics([NewTopic(topic, partitions=1, replication_factor=1)])
    refused = False
    options["sasl_oauth_token_provider"] = lambda: "no.token." if refused else token(lifetime_s=3)
    consumer = Consumer(topic, bootstrap_servers=where, group_id=group, enable_auto_commit=False, **options)

    async def poll(until: Callable[[], object]) -> None:
        while not until():
            await consumer.getmany(timeout_ms=200)

    await consumer.start()
    async with asyncio.timeout(patient(60)):
        await poll(consumer.assignment)
        refused = True
        with pytest.raises(AuthenticationFailed, match="refused the token"):
            await poll(lambda: False)
        await consumer.abort()


def test_a_properties_file_of_the_java_client(
    kafka: SecuredKafka, authority: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same file connects Kafka's own tool and Busway's client."""
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.ca}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'  username="ann" password="{PASSWORD}";\n'
    )
    where = kafka.address("SASL_TLS")
    theirs = java(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", where, "--command-config", str(file), "--list"
    )
    command = [
        sys.executable,
        "-m",
        "busway.cli",
        "topics",
        "list",
        "-b",
        where,
        "--command-config",
        str(file),
        "--json",
    ]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {row["topic"] for row in json.loads(listed.stdout)} == {name for name in theirs.split() if name[:2] != "__"}
    monkeypatch.setenv("BUSWAY_COMMAND_CONFIG", str(file))

    async def ours() -> set[str]:
        async with Admin(where) as admin:
            return set(await admin.list_topics(internal=True))

    assert asyncio.run(ours()) == set(theirs.split())
