"""Signed tokens of an identity provider, and the public key that a broker checks them with (RFC 7515, RFC 7517).

Here: `SignedTokens`, signed by openssl.
Not here: the endpoint that gives them out (`token_endpoint`), unsigned ones (`secured_kafka.token`).
"""

import base64
import json
import subprocess
import time
from pathlib import Path

from tools.jars import need

from tests.support.certificates import OPENSSL


class SignedTokens:
    """A key pair in a folder, and tokens of the user ann."""

    def __init__(self, folder: Path) -> None:
        self._key = folder / "tokens.key"
        self._openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(self._key))
        modulus = self._openssl("rsa", "-in", str(self._key), "-noout", "-modulus").decode().strip().partition("=")[2]
        key = {
            "kty": "RSA",
            "kid": "test",
            "use": "sig",
            "alg": "RS256",
            "n": _text(bytes.fromhex(modulus)),
            "e": "AQAB",
        }
        self._public = folder / "tokens.json"
        self._public.write_text(json.dumps({"keys": [key]}))

    @property
    def keys_url(self) -> str:
        """Where a broker reads the public key."""
        return self._public.as_uri()

    def token(self, lifetime_s: int = 600) -> str:
        """Sign a token."""
        now = int(time.time())
        claims = {"sub": "ann", "iat": now - 10, "exp": now + lifetime_s}
        signed = ".".join(_text(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "test"}, claims))
        signature = self._openssl("dgst", "-sha256", "-sign", str(self._key), given=signed.encode())
        return f"{signed}.{_text(signature)}"

    @staticmethod
    def _openssl(*arguments: str, given: bytes = b"") -> bytes:
        return subprocess.run(
            [need("openssl", OPENSSL), *arguments], input=given, capture_output=True, check=True
        ).stdout


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
