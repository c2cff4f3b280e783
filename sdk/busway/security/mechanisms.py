"""SASL mechanisms as pure exchanges: PLAIN and OAUTHBEARER.

Here: `Exchange`, the interface of all mechanisms, and `MechanismFailed`.
Not here: SCRAM (`scram`), sending the messages (`busway.net.sasl`), getting tokens (`oauth`).
"""

import json
import re
from typing import Final, Protocol

_TOKEN: Final = re.compile(r"[-._~+/A-Za-z0-9]+=*")
"""RFC 6750's b68token."""
_CONTINUATION: Final = b"\x01"


class MechanismFailed(Exception):
    """An exchange failed; the text has the reason and no secrets."""


class Exchange(Protocol):
    """One authentication, message by message."""

    complete: bool
    """Whether the server may end the exchange as a success."""

    def step(self, challenge: bytes) -> bytes | None:
        """Return the client's next message; None if the server's was the last.

        Args:
            challenge: the server's message, empty at the start.

        Raises:
            MechanismFailed: a refusal, or a message that breaks the protocol.
        """


class Plain:
    """PLAIN (RFC 4616): name and password in one message."""

    def __init__(self, username: str, password: str) -> None:
        if "\0" in username or "\0" in password:
            raise MechanismFailed("a user name or password of PLAIN cannot have a zero byte")
        self._message = b"\0" + username.encode() + b"\0" + password.encode()
        self.complete: bool = False

    def step(self, challenge: bytes) -> bytes | None:
        if self.complete:
            return None
        self.complete = True
        return self._message


class OAuthBearer:
    """OAUTHBEARER (RFC 7628): a token; the server explains a refusal in JSON."""

    def __init__(self, token: str) -> None:
        if not _TOKEN.fullmatch(token):
            raise MechanismFailed("the token is not of the form of a bearer token (RFC 6750): letters, digits, -._~+/=")
        self._message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        self._begun = False
        self._refusal: str | None = None
        self.complete: bool = False

    def step(self, challenge: bytes) -> bytes | None:
        """See `Exchange.step`; a refusal is answered once, then the server ends the exchange (RFC 7628, 3.2.3)."""
        if not self._begun:
            self._begun = True
            return self._message
        if self._refusal is not None:
            raise MechanismFailed(self._refusal)
        if challenge:
            self._refusal = _refusal(bytes(challenge))
            return _CONTINUATION
        self.complete = True
        return None

    @property
    def refusal(self) -> str | None:
        """The server's reason; None without one."""
        return self._refusal


def _refusal(challenge: bytes) -> str:
    try:
        answer = json.loads(challenge)
        parts = [f"{name} {str(answer[name])[:100]}" for name in ("status", "scope") if answer.get(name)]
    except (ValueError, AttributeError):
        parts = []
    return f"the token was refused{': ' + ', '.join(parts) if parts else ''}"
