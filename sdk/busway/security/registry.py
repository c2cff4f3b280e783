"""Security of connections to a schema registry: credentials and TLS.

Here: `RegistrySecurity`, its header and its TLS context.
Not here: the registry's API (`busway.serde.registry`).
"""

import base64
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

_PREFIX: Final = "BUSWAY_SCHEMA_REGISTRY_"
_HEADER_TEXT: Final = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySecurity:
    """Credentials and TLS under Confluent's names in snake case, files as in `SecurityOptions`.

    Attributes:
        basic_auth_user_info: `user:password`.
        bearer_auth_token: a token, instead.
        ssl_cafile: PEM file of trusted CAs for https; by default those of the operating system.
        ssl_certfile, ssl_keyfile: PEM files of the client's certificate and its key.
    """

    basic_auth_user_info: str | None = field(default=None, repr=False)
    bearer_auth_token: str | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None

    def __post_init__(self) -> None:
        if self.basic_auth_user_info is not None and ":" not in self.basic_auth_user_info:
            raise ValueError("basic_auth_user_info is not of the form user:password")
        if self.bearer_auth_token is not None:
            if self.basic_auth_user_info is not None:
                raise ValueError("basic_auth_user_info and bearer_auth_token are both set; leave one of them out")
            if not _HEADER_TEXT.fullmatch(self.bearer_auth_token):
                raise ValueError("bearer_auth_token has characters that no token has, such as a line's end")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError("ssl_keyfile is set without ssl_certfile; name the file of the client's certificate too")

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        if self.bearer_auth_token is not None:
            return {"Authorization": f"Bearer {self.bearer_auth_token}"}
        if self.basic_auth_user_info is not None:
            return {"Authorization": f"Basic {base64.b64encode(self.basic_auth_user_info.encode()).decode()}"}
        return {}

    def context(self) -> ssl.SSLContext:
        """Load the TLS context; reads files, so call it in a thread.

        Raises:
            ValueError: a file cannot be used.
        """
        try:
            context = ssl.create_default_context(cafile=self.ssl_cafile)
            if self.ssl_certfile is not None:
                context.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, lambda: "")
        except (OSError, ValueError) as problem:
            reason = (problem.strerror if isinstance(problem, OSError) else None) or type(problem).__name__
            files = ", ".join(filter(None, (self.ssl_cafile, self.ssl_certfile, self.ssl_keyfile)))
            raise ValueError(
                f"schema registry: {files} cannot be used as PEM files, {reason}; check path and content"
            ) from None
        return context


def registry_security(environment: Mapping[str, str] = os.environ) -> RegistrySecurity:
    """Read `BUSWAY_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO` and so on.

    Raises:
        ValueError: what is set does not fit together.
    """
    names = [option.name for option in fields(RegistrySecurity)]
    return RegistrySecurity(**{name: environment.get(_PREFIX + name.upper()) or None for name in names})
