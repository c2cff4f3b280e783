"""SCRAM's client side (RFC 5802, RFC 7677), as a pure exchange.

Here: `Scram`: messages, proof, verification of the server.
Not here: sending them (`busway.net.sasl`), other mechanisms (`mechanisms`).
"""

import base64
import binascii
import hashlib
import hmac
from typing import Final

from busway.security.mechanisms import MechanismFailed

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN: Final = 4096
"""Fewer are refused, as by Kafka's clients (RFC 5802, 5.1)."""
ITERATIONS_MAX: Final = 1_000_000
"""More are refused; about a second of computation."""
_HEADER: Final = "n,,"


class Scram:
    """One exchange: `step` takes the server's message and returns the client's next.

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        username, password: as they are stored, in UTF-8; like Kafka's, without SASLprep.
        nonce: random printable text without a comma, new for each exchange.
    """

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={nonce}"
        self._signature: bytes | None = None
        self._begun = False
        self.complete: bool = False

    def step(self, challenge: bytes) -> bytes | None:
        """Return the next message; None after the server has proved that it knows the password.

        Computes up to `ITERATIONS_MAX` hashes, so call it in a thread.

        Raises:
            MechanismFailed: a refusal, or a message that breaks the protocol.
        """
        if not self._begun:
            self._begun = True
            return (_HEADER + self._first).encode()
        if self._signature is None:
            return self._prove(challenge)
        self._verify(challenge)
        return None

    def _prove(self, challenge: bytes) -> bytes:
        text, values = self._parsed(challenge)
        nonce = values.get("r", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise MechanismFailed("the server's nonce does not continue the client's; another server may be in between")
        try:
            salt = base64.b64decode(values["s"], validate=True)
            iterations = int(values["i"])
        except (KeyError, ValueError, binascii.Error):
            raise MechanismFailed("the server's first message has no valid salt and iteration count") from None
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise MechanismFailed(
                f"the server wants {iterations} iterations, {ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted; "
                "store the credentials with a number in this range"
            )
        bare = f"c={base64.b64encode(_HEADER.encode()).decode()},r={nonce}"
        message = f"{self._first},{text},{bare}".encode()
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._mac(salted, b"Client Key")
        signature = self._mac(hashlib.new(self._hash, client_key).digest(), message)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        self._signature = self._mac(self._mac(salted, b"Server Key"), message)
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, challenge: bytes) -> None:
        assert self._signature is not None
        _, values = self._parsed(challenge)
        if "e" in values:
            raise MechanismFailed(f"the server says {values['e'][:100]}")
        try:
            signature = base64.b64decode(values.get("v", ""), validate=True)
        except (ValueError, binascii.Error):
            signature = b""
        if not hmac.compare_digest(signature, self._signature):
            raise MechanismFailed("the server has not proved that it knows the password; it may be another server")
        self.complete = True

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)

    def _parsed(self, challenge: bytes) -> tuple[str, dict[str, str]]:
        try:
            text = bytes(challenge).decode()
        except UnicodeDecodeError:
            raise MechanismFailed(f"the server's message is no text of {self._mechanism}") from None
        values: dict[str, str] = {}
        for part in text.split(","):
            name, equals, value = part.partition("=")
            if not equals or len(name) != 1 or name in values:
                raise MechanismFailed(f"the server's message is not of the form of {self._mechanism}")
            values[name] = value
        if "m" in values:
            raise MechanismFailed(f"the server requires an extension of {self._mechanism} that is not known here")
        return text, values
