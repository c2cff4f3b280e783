"""Security options for Java's client in Spark."""

from pathlib import Path

import pytest

from busway.security.properties import BadProperties
from busway_spark.java_options import java_options
from busway_spark.security import client_security

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
MUTUAL = {
    "kafka.security.protocol": "SSL",
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.location": "/ca.pem",
    "kafka.ssl.keystore.type": "PEM",
    "kafka.ssl.keystore.location": "/client.pem",
    "kafka.ssl.key.password": "k3y",
}
OWN = {
    "kafka.security.protocol": "SSL",
    "kafka.ssl.cafile": "/ca.pem",
    "kafka.ssl.certfile": "/client.pem",
    "kafka.ssl.password": "k3y",
}


def test_options_of_java_stay() -> None:
    """Also such that Busway's client lacks; without security there is nothing to add."""
    kerberos = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI", "kafka.client.id": "c"}
    assert java_options(kerberos) == kerberos
    assert java_options(MUTUAL) == MUTUAL
    assert java_options({"kafka.client.id": "c"}) == {"kafka.client.id": "c"}


def test_names_of_busway_become_those_of_java() -> None:
    """Java's client would ignore them; both clients then have the same options."""
    assert java_options({**OWN, "kafka.client.id": "c"}) == {**MUTUAL, "kafka.client.id": "c"}
    assert client_security(OWN) == client_security(MUTUAL)


def test_the_environment_is_for_javas_client_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password with quotes comes through the JAAS configuration."""
    for name, text in {
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SSL_CHECK_HOSTNAME": "false",
        "SASL_MECHANISM": "SCRAM-SHA-256",
        "SASL_PLAIN_USERNAME": "ann",
        "SASL_PLAIN_PASSWORD": 's"\\3',
    }.items():
        monkeypatch.setenv(f"BUSWAY_{name}", text)
    options = java_options({})
    assert options == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": SCRAM + r' username="ann" password="s\"\\3";',
    }
    assert client_security(options) == client_security({})
    assert java_options({"kafka.security.protocol": "PLAINTEXT"}) == {"kafka.security.protocol": "PLAINTEXT"}


def test_tokens_by_client_credentials() -> None:
    """Names of Kafka 4.1 become the JAAS configuration of older clients; the handler is added unless given."""
    url = {"kafka.sasl.oauthbearer.token.endpoint.url": "https://login.example/token"}
    base = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER", **url}
    credentials = "kafka.sasl.oauthbearer.client.credentials.client"
    login = {"kafka.sasl.jaas.config": f'{LOGIN} clientId="shop" clientSecret="s" scope="read write";'}
    handler = {"kafka.sasl.login.callback.handler.class": HANDLER}
    newer = {f"{credentials}.id": "shop", f"{credentials}.secret": "s", "kafka.sasl.oauthbearer.scope": "read write"}
    assert java_options(base | newer) == base | login | handler
    assert java_options(base | login) == base | login | handler
    own_handler = {"kafka.sasl.login.callback.handler.class": "com.example.Tokens"}
    assert java_options(base | own_handler) == base | own_handler


def test_a_key_in_another_file_is_refused() -> None:
    """With the command that joins the two."""
    with pytest.raises(BadProperties, match=r"^ssl_keyfile: .*`cat /client.pem /key.pem > client.pem`"):
        java_options({**OWN, "kafka.ssl.keyfile": "/key.pem"})
    assert java_options({**OWN, "kafka.ssl.keyfile": "/client.pem"}) == MUTUAL


def test_a_key_of_another_form_is_refused(tmp_path: Path) -> None:
    """Java reads PKCS 8 alone; a file that is not here, or no text, is the executors' matter."""
    file = tmp_path / "client.pem"
    options = {**MUTUAL, "kafka.ssl.keystore.location": str(file)}
    assert java_options(options) == options
    for text in (b"-----BEGIN PRIVATE KEY-----\n", b"\xfe\xed\xfe\xed"):
        file.write_bytes(text)
        assert java_options(options) == options
    file.write_text("-----BEGIN EC PRIVATE KEY-----\n")
    with pytest.raises(BadProperties, match=r"not in PKCS 8.*`openssl pkcs8 -topk8 -in .*client\.pem -out key\.pem`"):
        java_options(options)
    key = "-----BEGIN ENCRYPTED PRIVATE KEY-----\n{}\n-----END ENCRYPTED PRIVATE KEY-----\n"
    file.write_text(key.format("MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAc"))  # its first bytes, by OpenSSL's default
    with pytest.raises(BadProperties, match=r"encrypted with PBES2.*`openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in "):
        java_options(options)
    for other in ("MIGwMBwGCiqGSIb3DQEMAQMwDgQI", "MIG"):
        file.write_text(key.format(other))
        assert java_options(options) == options


def test_names_of_busway_that_do_not_fit() -> None:
    """Refused as by Busway's client."""
    with pytest.raises(BadProperties, match=r"ssl_cafile: security_protocol is PLAINTEXT, which has no TLS"):
        java_options({"kafka.ssl.cafile": "/ca.pem"})
