"""Security from files of Java clients and from the environment."""

from pathlib import Path

import pytest

from busway.security.options import SecurityOptions
from busway.security.properties import BadProperties, options_from_environment, options_from_properties, parsed

SECRET = 'p"a\\ss;word=1'
SCRAM = """
# a client's file
bootstrap.servers=broker:9093
security.protocol=SASL_SSL
sasl.mechanism = SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="ann" \\
    password="p\\\\"a\\\\\\\\ss;word=1";
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kafka/ca.pem
"""


def test_scram_over_tls() -> None:
    """The form that the documentation of Kafka shows, with continued lines and a quoted password."""
    assert options_from_properties(SCRAM, "client.properties") == SecurityOptions(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="ann",
        sasl_plain_password=SECRET,
        ssl_cafile="/etc/kafka/ca.pem",
    )


def test_client_credentials_of_kafka_before_and_since_4_1() -> None:
    """In the JAAS configuration, or as properties, which count more."""
    text = """
security.protocol=sasl_ssl
sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.token.endpoint.url=https://login.example/token
sasl.oauthbearer.client.credentials.client.id=shop
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="old" clientSecret="x" scope="s";
"""
    options = options_from_properties(text, "client.properties")
    assert options is not None
    assert options.sasl_oauthbearer_client_credentials_client_id == "shop"
    assert options.sasl_oauthbearer_client_credentials_client_secret == "x"
    assert options.sasl_oauthbearer_scope == "s"


def test_mutual_tls() -> None:
    """A PEM key store has the chain and the key in one file."""
    text = """
security.protocol=SSL
ssl.keystore.type=PEM
ssl.keystore.location=client.pem
ssl.key.password=s
ssl.endpoint.identification.algorithm=
"""
    assert options_from_properties(text, "f") == SecurityOptions(
        security_protocol="SSL", ssl_certfile="client.pem", ssl_password="s", ssl_check_hostname=False
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "security.protocol=SSL\nssl.truststore.location=trust.jks\n",
            r"f: ssl.truststore.location: trust.jks is a store of Java \(JKS by default\).*keytool -importkeystore -srckeystore trust.jks",
        ),
        ("ssl.keystore.location=a.p12\nssl.keystore.type=PKCS12", r"a store of Java \(PKCS12\), and PEM is needed"),
        (
            "ssl.keystore.key=secret",
            r"^f: ssl.keystore.key: put it into a PEM file and name it as ssl.keystore.location$",
        ),
        ("sasl.jaas.config=a.PlainLoginModule required username=secret", r"the semicolon at its end is part of it$"),
        (
            "sasl.jaas.config=a.Krb5LoginModule required useKeyTab=true;",
            "Krb5LoginModule is not supported; there are Plain",
        ),
        (
            'sasl.jaas.config=a.PlainLoginModule required "secret";',
            "the options of PlainLoginModule are not of the form",
        ),
        ("security.protocol=TLS", "f: security_protocol: 'TLS' is not"),
        ("ssl.endpoint.identification.algorithm=ldaps", "'ldaps' is not https, or empty"),
        ("security.protocol=SASL_SSL", "f: security_protocol SASL_SSL needs sasl_mechanism"),
    ],
)
def test_what_cannot_be_used_is_named(text: str, reason: str) -> None:
    """File, property, remedy; no secret."""
    with pytest.raises(BadProperties, match=reason) as refused:
        options_from_properties(text, "f")
    assert "secret" not in str(refused.value)


def test_a_file_without_security_has_none() -> None:
    """Such as one for the broker's address alone."""
    assert options_from_properties("bootstrap.servers=a:1\nacks=all", "f") is None


def test_the_rules_of_properties_files() -> None:
    """As `java.util.Properties.load`."""
    text = "! c\n#c\n\n a = 1 \nb:2\nc 3\nd\n e\\ f=\\u0041\\t.\nlong=x\\\n   y\\\\\n"
    assert parsed(text) == {"a": "1 ", "b": "2", "c": "3", "d": "", "e f": "A\t.", "long": "xy\\"}


def test_the_environment(tmp_path: Path) -> None:
    """Variables under the options' names; what the file says counts more."""
    assert options_from_environment({}) is None
    given = {"BUSWAY_SECURITY_PROTOCOL": "SSL", "BUSWAY_SSL_CAFILE": "ca.pem", "BUSWAY_SSL_CHECK_HOSTNAME": "false"}
    assert options_from_environment(given) == SecurityOptions(
        security_protocol="SSL", ssl_cafile="ca.pem", ssl_check_hostname=False
    )
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=a.PlainLoginModule required username=a password=b;"
    )
    options = options_from_environment({**given, "BUSWAY_COMMAND_CONFIG": str(file)})
    assert options is not None
    assert (options.security_protocol, options.ssl_cafile) == ("SASL_SSL", "ca.pem")
    with pytest.raises(BadProperties, match="absent: cannot be read, No such file"):
        options_from_environment({"BUSWAY_COMMAND_CONFIG": "absent"})
    with pytest.raises(BadProperties, match="BUSWAY_SSL_CHECK_HOSTNAME: 'maybe' is not true or false"):
        options_from_environment({"BUSWAY_SSL_CHECK_HOSTNAME": "maybe"})
