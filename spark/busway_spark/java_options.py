"""Security options for Java's client in Spark's Kafka source and sink.

Here: Busway's own names and the environment's options under Java's names, and refusals of what Java's client cannot use.
Not here: the same options for Busway's client (`security`). No Spark is imported.
"""

import binascii
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from busway import SecurityOptions
from busway.security.properties import BadProperties
from busway_spark.security import PREFIX, client_security, is_security_option

_OWN: Final = frozenset(
    {
        "ssl.cafile",
        "ssl.certfile",
        "ssl.keyfile",
        "ssl.password",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.scope",
    }
)
"""Names that Java's client ignores: Busway's, and those of Kafka 4.1 and newer; Spark 4.2 has the client of 3.9."""
_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_HANDLER: Final = "sasl.login.callback.handler.class"
_MODULES: Final = "org.apache.kafka.common.security"
_CREDENTIALS: Final = f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
"""Requests tokens by client credentials; by default Java's client makes unsigned ones, for tests."""
_ENCRYPTED_KEY: Final = re.compile(r"-----BEGIN ENCRYPTED PRIVATE KEY-----([^-]*)-----END")
_PBES2: Final = bytes.fromhex("06092a864886f70d01050d")
"""The algorithm's object identifier in DER (RFC 8018); OpenSSL encrypts with it by default."""
_OTHER_KEY: Final = re.compile(r"-----BEGIN (?:EC|RSA|DSA) PRIVATE KEY-----")


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return a source's options as Java's client takes them; security that they leave out is the environment's.

    Raises:
        BadProperties: options that do not fit together, or files that Java's client cannot use.
    """
    own = [name for name in options if name.startswith(PREFIX) and name.removeprefix(PREFIX) in _OWN]
    result = {name: text for name, text in options.items() if name not in own}
    if own or not any(map(is_security_option, options)):
        result |= {PREFIX + name: text for name, text in java_properties(client_security(options)).items()}
    if PREFIX + _ENDPOINT in result:
        result.setdefault(PREFIX + _HANDLER, _CREDENTIALS)
    _check_key(result.get(f"{PREFIX}ssl.keystore.location"))
    return result


def java_properties(security: SecurityOptions) -> dict[str, str]:
    """Return security under the names of Java's clients; nothing for plain text.

    Raises:
        BadProperties: the private key is in another file than the certificate.
    """
    if security.security_protocol == "PLAINTEXT":
        return {}
    properties: dict[str, str] = {"security.protocol": security.security_protocol}
    if security.ssl_cafile is not None:
        properties |= _store("truststore", security.ssl_cafile)
    if security.ssl_certfile is not None:
        if security.ssl_keyfile not in {None, security.ssl_certfile}:
            raise BadProperties(
                f"ssl_keyfile: Spark's Kafka source reads certificate and private key from one file; join them with "
                f"`cat {security.ssl_certfile} {security.ssl_keyfile} > client.pem`, name that as ssl_certfile and leave ssl_keyfile out"
            )
        properties |= _store("keystore", security.ssl_certfile)
    if security.ssl_password is not None:
        properties["ssl.key.password"] = security.ssl_password
    if not security.ssl_check_hostname:
        properties["ssl.endpoint.identification.algorithm"] = ""
    return properties | _login(security)


def _store(name: str, file: str) -> dict[str, str]:
    return {f"ssl.{name}.type": "PEM", f"ssl.{name}.location": file}


def _login(security: SecurityOptions) -> dict[str, str]:
    if security.sasl_mechanism is None:
        return {}
    properties: dict[str, str] = {"sasl.mechanism": security.sasl_mechanism}
    if security.sasl_oauthbearer_token_endpoint_url is not None:
        properties[_ENDPOINT] = security.sasl_oauthbearer_token_endpoint_url
        module = "oauthbearer.OAuthBearerLoginModule"
        given = {
            "clientId": security.sasl_oauthbearer_client_credentials_client_id,
            "clientSecret": security.sasl_oauthbearer_client_credentials_client_secret,
            "scope": security.sasl_oauthbearer_scope,
        }
    else:
        module = "plain.PlainLoginModule" if security.sasl_mechanism == "PLAIN" else "scram.ScramLoginModule"
        given = {"username": security.sasl_plain_username, "password": security.sasl_plain_password}
    options = "".join(f" {name}={_quoted(value)}" for name, value in given.items() if value is not None)
    return properties | {"sasl.jaas.config": f"{_MODULES}.{module} required{options};"}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _check_key(file: str | None) -> None:
    """Refuse a private key in a form at which Java's client fails without a remedy."""
    if file is None:
        return
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # a store of Java, or a file of the executors alone
        return
    if _OTHER_KEY.search(text):
        raise BadProperties(
            f"{file}: its private key is not in PKCS 8, the only form that Spark's Kafka source reads; convert it with "
            f"`openssl pkcs8 -topk8 -in {file} -out key.pem` and join it with the certificates"
        )
    if _is_pbes2(text):
        raise BadProperties(
            f"{file}: its private key is encrypted with PBES2, which Java 17 does not read; convert it with `openssl pkcs8 -topk8 "
            f"-v1 PBE-SHA1-3DES -in {file} -out key.pem` and join it with the certificates, or use a key without a password in a "
            "file that only the job's user may read"
        )


def _is_pbes2(text: str) -> bool:
    encrypted = _ENCRYPTED_KEY.search(text)
    try:
        return encrypted is not None and _PBES2 in binascii.a2b_base64(encrypted[1])
    except binascii.Error:  # damaged, as Java's client will say
        return False
