"""Security of a worker's clients and of its connectors' clients."""

from pathlib import Path

import pytest

from busway import SecurityOptions
from busway_connect.cli_entry import read_properties
from busway_connect.config import BadSetting, WorkerConfig
from busway_connect.overrides import (
    admin_options,
    consumer_options,
    inherited,
    producer_options,
    security_problems,
    with_defaults,
)
from busway_connect.runtime.worker import Worker

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="{}" password="s3cret";'
OWN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS.format("worker")}


def sasl(user: str, **options: str) -> SecurityOptions:
    """Options of PLAIN."""
    return SecurityOptions(
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_plain_username=user,
        sasl_plain_password="s3cret",
        **options,  # type: ignore[arg-type]
    )


def test_clients_without_settings_take_the_workers() -> None:
    """Of its producers, consumers and admin clients."""
    config = inherited({}, OWN)
    for options in (producer_options(config), consumer_options(config), admin_options(config)):
        assert options["security"] == sasl("worker")


def test_settings_without_a_protocol_are_added() -> None:
    """`producer.` above the worker's, `producer.override.` above both."""
    worker = inherited({"producer.sasl.jaas.config": JAAS.format("sources"), "producer.ssl.cafile": "/ca.pem"}, OWN)
    assert producer_options(worker)["security"] == sasl("sources", ssl_cafile="/ca.pem")
    assert consumer_options(worker)["security"] == sasl("worker")
    merged = with_defaults(worker, {"producer.override.sasl.jaas.config": JAAS.format("mine")})
    assert producer_options(merged)["security"] == sasl("mine", ssl_cafile="/ca.pem")


def test_a_protocol_replaces_what_is_below() -> None:
    """Otherwise a connector without SASL would have the worker's mechanism."""
    merged = with_defaults(inherited({}, OWN), {"consumer.override.security.protocol": "SSL"})
    assert consumer_options(merged)["security"] == SecurityOptions(security_protocol="SSL")
    assert producer_options(merged)["security"] == sasl("worker")


def test_without_any_the_environment_decides() -> None:
    """None is what clients take for it."""
    assert producer_options({"producer.override.linger.ms": "3"}) == {"linger_ms": 3.0, "security": None}


def test_a_connectors_own_protocol_is_checked_at_once() -> None:
    """Without one the worker's settings count too, and the start of the task checks."""
    partial = {"producer.override.sasl.jaas.config": JAAS.format("mine")}
    assert security_problems(partial, alone=True) == {}
    wrong = security_problems({"producer.override.security.protocol": "SASL_SSL", **partial}, alone=True)
    assert list(wrong) == ["producer.override.security.protocol"]
    assert "needs sasl_mechanism" in wrong["producer.override.security.protocol"]


def test_a_worker_reads_its_file(tmp_path: Path) -> None:
    """With lines that go on, and references to secrets, whose values are in no text of the settings."""
    (tmp_path / "secrets").write_text("password=s3cret\n")
    file = tmp_path / "worker.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        f'  username="worker" password="${{file:{tmp_path}/secrets:password}}";\n'
        "config.providers=file\nconfig.providers.file.class=FileConfigProvider\n"
        f"config.providers.file.param.allowed.paths={tmp_path}\n"
    )
    config = WorkerConfig.from_properties(read_properties(file))
    worker = Worker(config, "w")
    assert worker._security == sasl("worker")
    assert "s3cret" not in f"{config!r}{worker._security!r}"


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({**OWN, "sasl.jaas.config": "s3cret"}, "^sasl.jaas.config: not of the form"),
        ({"producer.security.protocol": "SASL_SSL"}, "^producer.security.protocol: .*needs sasl_mechanism"),
        ({"ssl.truststore.location": "/s.jks", "security.protocol": "SSL"}, "keytool -importkeystore"),
    ],
)
def test_a_worker_with_unusable_security_does_not_start(properties: dict[str, str], text: str) -> None:
    """The text names the setting and holds no secret."""
    with pytest.raises(BadSetting, match=text) as refused:
        Worker(WorkerConfig.from_properties(properties), "w")
    assert "s3cret" not in str(refused.value)
