"""Security of Busway's client in Spark's jobs."""

from pathlib import Path

import pytest

from busway import SecurityOptions
from busway.security.options import PLAINTEXT
from busway.security.properties import BadProperties
from busway_spark.security import checking_security, client_security, is_security_option, options_of_file

FILE = (
    "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nclient.id=tool\n"
    "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
    '  username="ann" password="s3cret";\n'
)
SECURED = SecurityOptions(
    security_protocol="SASL_SSL",
    sasl_mechanism="SCRAM-SHA-512",
    sasl_plain_username="ann",
    sasl_plain_password="s3cret",
)


def test_the_options_of_a_file_are_those_of_sparks_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named, or from the environment; other properties are left out."""
    file = tmp_path / "client.properties"
    file.write_text(FILE)
    options = options_of_file(str(file))
    assert options.keys() == {"kafka.security.protocol", "kafka.sasl.mechanism", "kafka.sasl.jaas.config"}
    assert client_security(options) == SECURED
    assert options_of_file(None) == {}
    monkeypatch.setenv("BUSWAY_COMMAND_CONFIG", str(file))
    assert options_of_file(None) == options
    assert client_security({}) == SECURED
    with pytest.raises(BadProperties, match=r"absent\.properties: cannot be read, No such file"):
        options_of_file(str(tmp_path / "absent.properties"))


def test_options_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without either it is plain text."""
    assert client_security({"kafka.client.id": "x"}) == PLAINTEXT
    monkeypatch.setenv("BUSWAY_SECURITY_PROTOCOL", "SSL")
    assert client_security({}) == SecurityOptions(security_protocol="SSL")
    assert client_security({"kafka.security.protocol": "PLAINTEXT"}) == PLAINTEXT


@pytest.mark.parametrize(
    "options",
    [
        {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "GSSAPI"},
        {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/ca.jks"},
        {"kafka.security.protocol": "CARRIER_PIGEON"},
    ],
)
def test_what_only_javas_client_has(options: dict[str, str]) -> None:
    """Busway's source refuses it; before Spark's own source nothing is checked."""
    with pytest.raises(BadProperties):
        client_security(options)
    assert checking_security(options) is None


def test_what_is_about_security() -> None:
    """Names of Kafka's client settings behind `kafka.`."""
    names = ("kafka.security.protocol", "kafka.sasl.mechanism", "kafka.ssl.truststore.location")
    assert all(is_security_option(name) for name in names)
    assert not any(is_security_option(name) for name in ("kafka.client.id", "sasl.mechanism", "kafka.isolation.level"))
