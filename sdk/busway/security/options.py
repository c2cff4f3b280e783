"""Options of secured connections: TLS, SASL and their credentials.

Here: `SecurityOptions`, their checks, and taking them out of a client's keyword arguments.
Not here: files and environment variables (`properties`), TLS contexts (`tls`), mechanisms (`scram`, `mechanisms`).
"""

import difflib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias, get_args

Protocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
TokenProvider: TypeAlias = Callable[[], str | Awaitable[str]]
"""Returns a bearer token; called for each authentication, on the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityOptions:
    """Options of secured connections, under the names of Kafka's client settings in snake case and of aiokafka.

    Passwords, secrets and tokens are left out of `repr` and of error texts.

    Attributes:
        security_protocol: PLAINTEXT, SSL (TLS), SASL_PLAINTEXT, SASL_SSL.
        ssl_cafile: PEM file of trusted certificate authorities; by default those of the operating system.
        ssl_certfile: PEM file of the client's certificate and its chain (mutual TLS).
        ssl_keyfile: PEM file of the client's private key; by default ssl_certfile.
        ssl_password: of the private key.
        ssl_check_hostname: the certificate must be for the host that is connected to.
        sasl_mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
        sasl_plain_username, sasl_plain_password: of PLAIN and SCRAM.
        sasl_oauth_token_provider: function, also async, that returns a token for OAUTHBEARER.
        sasl_oauthbearer_token_endpoint_url: where a token is requested with the client's credentials (RFC 6749, 4.4).
        sasl_oauthbearer_client_credentials_client_id: the client's name at the identity provider.
        sasl_oauthbearer_client_credentials_client_secret: its secret.
        sasl_oauthbearer_scope: of the requested token.
    """

    security_protocol: Protocol = "PLAINTEXT"
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    sasl_mechanism: Mechanism | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = field(default=None, repr=False)
    sasl_oauth_token_provider: TokenProvider | None = field(default=None, repr=False)
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: str | None = field(default=None, repr=False)
    sasl_oauthbearer_scope: str | None = None

    def __post_init__(self) -> None:
        self._check_types()
        if self.security_protocol not in get_args(Protocol):
            raise ValueError(f"security_protocol: {self.security_protocol!r} is not {_listed(get_args(Protocol))}")
        if self.sasl_mechanism is not None and self.sasl_mechanism not in get_args(Mechanism):
            raise ValueError(f"sasl_mechanism: {self.sasl_mechanism!r} is not {_listed(get_args(Mechanism))}")
        self._check_tls()
        self._check_sasl()

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in {"SSL", "SASL_SSL"}

    @property
    def uses_sasl(self) -> bool:
        """Whether connections authenticate by SASL."""
        return self.security_protocol in {"SASL_PLAINTEXT", "SASL_SSL"}

    def _check_types(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name == "sasl_oauth_token_provider":
                fits, expected = value is None or callable(value), "a function"
            elif option.name == "ssl_check_hostname":
                fits, expected = isinstance(value, bool), "True or False"
            else:
                fits, expected = value is None or isinstance(value, str), "a text"
            if not fits:  # without the value, which may be a secret
                raise TypeError(f"{option.name}: a value of the type {type(value).__name__} is not {expected}")

    def _given(self, prefix: str) -> list[str]:
        return [
            option.name
            for option in fields(self)
            if option.name.startswith(prefix) and getattr(self, option.name) != option.default
        ]

    def _check_tls(self) -> None:
        if (given := self._given("ssl_")) and not self.uses_tls:
            better = "SASL_SSL" if self.uses_sasl or self.sasl_mechanism else "SSL"
            raise ValueError(
                f"{', '.join(given)}: security_protocol is {self.security_protocol}, which has no TLS; "
                f"set security_protocol={better!r}, or leave {'them' if len(given) > 1 else 'it'} out"
            )
        for name in ("ssl_keyfile", "ssl_password"):
            if getattr(self, name) is not None and self.ssl_certfile is None:
                raise ValueError(f"{name} is set without ssl_certfile; name the file of the client's certificate too")

    def _check_sasl(self) -> None:
        if (given := self._given("sasl_")) and not self.uses_sasl:
            better = "SASL_SSL" if self.uses_tls else "SASL_SSL or SASL_PLAINTEXT"
            raise ValueError(
                f"{', '.join(given)}: security_protocol is {self.security_protocol}, which has no SASL; "
                f"set security_protocol to {better}, or leave {'them' if len(given) > 1 else 'it'} out"
            )
        if not self.uses_sasl:
            return
        if self.sasl_mechanism is None:
            raise ValueError(
                f"security_protocol {self.security_protocol} needs sasl_mechanism: {_listed(get_args(Mechanism))}, "
                "as the brokers have it enabled"
            )
        if self.sasl_mechanism == "OAUTHBEARER":
            self._check_oauth()
            return
        if other := self._given("sasl_oauth"):
            raise ValueError(f"{', '.join(other)}: sasl_mechanism is {self.sasl_mechanism}; they are for OAUTHBEARER")
        for name in ("sasl_plain_username", "sasl_plain_password"):
            if not getattr(self, name):
                raise ValueError(f"sasl_mechanism {self.sasl_mechanism} needs {name}")

    def _check_oauth(self) -> None:
        if other := self._given("sasl_plain"):
            raise ValueError(f"{', '.join(other)}: sasl_mechanism is OAUTHBEARER; they are for PLAIN and SCRAM")
        credentials = (
            "sasl_oauthbearer_client_credentials_client_id",
            "sasl_oauthbearer_client_credentials_client_secret",
        )
        url = self.sasl_oauthbearer_token_endpoint_url
        if self.sasl_oauth_token_provider is not None:
            if other := self._given("sasl_oauthbearer"):
                raise ValueError(f"{', '.join(other)}: leave them out, as sasl_oauth_token_provider makes the tokens")
        elif url is None or not all(getattr(self, name) for name in credentials):
            raise ValueError(
                "sasl_mechanism OAUTHBEARER needs sasl_oauth_token_provider, or "
                f"sasl_oauthbearer_token_endpoint_url with {' and '.join(credentials)}"
            )
        elif not url.startswith(("https://", "http://")):
            raise ValueError("sasl_oauthbearer_token_endpoint_url is not an https:// or http:// address")


NAMES: Final = tuple(option.name for option in fields(SecurityOptions))
PLAINTEXT: Final = SecurityOptions()


def split(options: Mapping[str, Any]) -> tuple[SecurityOptions | None, dict[str, Any]]:
    """Split a client's keyword arguments into those of security and the others.

    Security is None where none of them is given.

    Raises:
        TypeError: a value of another type, or an unknown name that begins with `ssl_` or `sasl_`.
        ValueError: options that do not fit together.
    """
    for name in options:
        if name.startswith(("ssl_", "sasl_", "security_")) and name not in NAMES:
            related = [known for known in NAMES if known[:4] == name[:4]]
            close = difflib.get_close_matches(name, related, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(NAMES)}"
            raise TypeError(f"{name} is no option of SecurityOptions; {hint}")
    given = {name: value for name, value in options.items() if name in NAMES}
    others = {name: value for name, value in options.items() if name not in NAMES}
    return SecurityOptions(**given) if given else None, others


def _listed(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
