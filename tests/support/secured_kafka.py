"""Apache Kafka 4.3.1 with a listener for each protocol, and for each certificate that clients must refuse.

Here: the broker with its user `ann`, options that it accepts.
Not here: a broker in this process that answers authentication alone (`secured_broker`).
"""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.support.apache_kafka import ApacheKafka, java
from tests.support.certificates import Certificates
from tests.support.programs import held_ports
from tests.support.signed_tokens import SignedTokens

PASSWORD = "pa55-phrase"
LISTENERS = {
    "PLAIN_TEXT": "PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASL_TLS": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT",
    "SIGNED": "SASL_SSL",
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SESSION_MS = 1_500
_SIGNED = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
"""Checks signatures; Kafka's default handler accepts unsigned tokens alone."""
_MODULES = {
    "plain": f'plain.PlainLoginModule required user_ann="{PASSWORD}"',
    "scram-sha-256": "scram.ScramLoginModule required",
    "scram-sha-512": "scram.ScramLoginModule required",
    "oauthbearer": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin"',
}


class SecuredKafka(ApacheKafka):
    """Apache Kafka with a listener for each protocol, and for each certificate that must be refused.

    Attributes:
        tokens: that the listener SIGNED accepts; the other ones accept unsigned tokens.
    """

    def __init__(self, authority: Certificates) -> None:
        self.tokens = SignedTokens(authority.folder)
        super().__init__()
        self._options += (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.tokens.keys_url}",)
        plain, controller = self._ports
        others = [name for name in LISTENERS if name != "PLAIN_TEXT"]
        self.ports = {"PLAIN_TEXT": plain, **dict(zip(others, held_ports(len(others)), strict=True))}
        addresses = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        protocols = ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items())
        self.properties |= {
            "listeners": f"{addresses},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": addresses,
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocols}",
            "inter.broker.listener.name": "PLAIN_TEXT",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority.ca,
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.signed.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.signed.oauthbearer.sasl.server.callback.handler.class": _SIGNED,
            "sasl.oauthbearer.jwks.endpoint.url": self.tokens.keys_url,
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.short.plain.connections.max.reauth.ms": str(SESSION_MS),
        }
        stores = {"expired": {"days": -1}, "elsewhere": {"names": "DNS:elsewhere"}}
        for listener in ("tls", "mutual", "sasl_tls", "signed", "expired", "elsewhere"):
            prefix = f"listener.name.{listener}.ssl.keystore"
            file = authority.issued(f"broker-{listener}", **stores.get(listener, {}))  # type: ignore[arg-type]
            self.properties |= {f"{prefix}.type": "PEM", f"{prefix}.location": file}
        for listener in ("sasl", "sasl_tls", "signed", "short"):
            for mechanism, module in _MODULES.items():
                name = f"listener.name.{listener}.{mechanism}.sasl.jaas.config"
                self.properties[name] = f"org.apache.kafka.common.security.{module};"

    def address(self, listener: str) -> str:
        """Where a listener is."""
        return f"127.0.0.1:{self.ports[listener]}"


@contextmanager
def secured_kafka(authority: Certificates) -> Iterator[SecuredKafka]:
    """A running broker with the user ann, also of SCRAM."""
    running = SecuredKafka(authority)
    try:
        running.start()
        where = ("--bootstrap-server", running.address("PLAIN_TEXT"))
        for name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            credential = f"{name}=[password={PASSWORD}]"
            user = ("--alter", "--add-config", credential, "--entity-type", "users", "--entity-name", "ann")
            java("kafka.admin.ConfigCommand", *where, *user)
        yield running
    finally:
        running.stop()


def token(lifetime_s: int = 600) -> str:
    """An unsigned token as Kafka's default handler of OAUTHBEARER accepts it; for tests only."""
    claims = {"sub": "ann", "iat": int(time.time()) - 10, "exp": int(time.time()) + lifetime_s}
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": "none"}, claims)
    ]
    return f"{'.'.join(parts)}."


def security(mechanism: str | None, protocol: str, authority: Certificates) -> dict[str, Any]:
    """Options that the broker accepts."""
    options: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        options["ssl_cafile"] = authority.ca
    if mechanism == "OAUTHBEARER":
        options |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": token}
    elif mechanism is not None:
        options |= {"sasl_mechanism": mechanism, "sasl_plain_username": "ann", "sasl_plain_password": PASSWORD}
    return options


REFUSED: Final[list[tuple[str, dict[str, Any], str]]] = [
    (
        "SASL",
        {"sasl_mechanism": "PLAIN", "sasl_plain_password": "wr0ng"},
        "refused the user 'ann' by PLAIN: wrong user name",
    ),
    (
        "SASL",
        {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_password": "wr0ng"},
        "refused the user 'ann' by SCRAM-SHA-512: wrong user name or password",
    ),
    (
        "SASL",
        {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "eve"},
        "refused the user 'eve' by SCRAM-SHA-256",
    ),
    (
        "SASL",
        {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_plain_username": None,
            "sasl_plain_password": None,
            "sasl_oauth_token_provider": token,
        },
        "enabled, not OAUTHBEARER; set sasl_mechanism",
    ),
    (
        "SASL_TLS",
        {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_plain_username": None,
            "sasl_plain_password": None,
            "sasl_oauth_token_provider": lambda: "no.token.",
        },
        "refused the token",
    ),
    ("PLAIN_TEXT", {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}, "has no SASL on this port"),
    ("EXPIRED", {}, "has expired; renew it on the broker"),
    ("ELSEWHERE", {}, "is not for 127.0.0.1; connect by a name in its subjectAltName"),
    ("TLS", {"ssl_cafile": None}, "is from a CA that is not trusted here; set ssl_cafile"),
]
"""Listener, changes of the accepted options, and the text of the error; authentication fails."""

WRONG_PORTS: Final = [
    ("PLAIN_TEXT", "SSL", "the port may speak plain text: set security_protocol to PLAINTEXT or SASL_PLAINTEXT"),
    ("TLS", "PLAINTEXT", "set security_protocol to SSL or SASL_SSL"),
    ("SASL", "PLAINTEXT", "if the port requires SASL, set security_protocol to SASL_SSL or SASL_PLAINTEXT"),
    ("MUTUAL", "SSL", "client('s)? certificate.*ssl_certfile and ssl_keyfile"),
]
"""Listener, protocol of the client, and the text of the error; the connection fails."""

ERRORS: Final[dict[str, tuple[str, dict[str, Any], str]]] = {
    **dict(
        zip(
            (
                "wrong password by PLAIN",
                "wrong password by SCRAM-SHA-512",
                "wrong user by SCRAM-SHA-256",
                "mechanism not enabled",
                "refused token",
                "port without SASL",
                "expired certificate",
                "certificate for another host",
                "untrusted CA",
            ),
            REFUSED,
            strict=True,
        )
    ),
    **{
        name: (listener, {"security_protocol": protocol}, text)
        for name, (listener, protocol, text) in zip(
            (
                "TLS on a port of plain text",
                "plain text on a port of TLS",
                "no SASL on a port of SASL",
                "no client certificate",
            ),
            WRONG_PORTS,
            strict=True,
        )
    },
}
"""All error cases by name: listener, changes of the accepted options, text."""


def refused_options(name: str, authority: Certificates) -> tuple[str, dict[str, Any], str]:
    """Return listener, options and text of an error case."""
    listener, changed, text = ERRORS[name]
    mechanism = "PLAIN" if "sasl_mechanism" in changed else None
    protocol = changed.get("security_protocol", LISTENERS[listener])
    given = security(mechanism, protocol, authority) | changed
    return listener, {option: value for option, value in given.items() if value is not None}, text


def as_properties(options: dict[str, Any], token_endpoint: str) -> dict[str, str]:
    """Return options under the names of Java's clients.

    Args:
        token_endpoint: instead of a function that returns tokens.
    """
    properties = {"security.protocol": options["security_protocol"]}
    for option, store in (("ssl_cafile", "truststore"), ("ssl_certfile", "keystore")):
        if option in options:
            properties |= {f"ssl.{store}.type": "PEM", f"ssl.{store}.location": options[option]}
    if "ssl_password" in options:
        properties["ssl.key.password"] = options["ssl_password"]
    if "sasl_mechanism" not in options:
        return properties
    mechanism = properties["sasl.mechanism"] = options["sasl_mechanism"]
    if mechanism == "OAUTHBEARER":
        properties["sasl.oauthbearer.token.endpoint.url"] = token_endpoint
        login = 'oauthbearer.OAuthBearerLoginModule required clientId="shop" clientSecret="cl1ent-s3cret"'
    else:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        user, password = options["sasl_plain_username"], options["sasl_plain_password"]
        login = f'{module} required username="{user}" password="{password}"'
    return properties | {"sasl.jaas.config": f"org.apache.kafka.common.security.{login};"}
