"""TLS of a client: contexts of certificate files, and the causes of failed handshakes.

Here: `TlsContext`, `explained`.
Not here: the options (`busway.security.options`), TLS of servers.
"""

import logging
import os
import ssl
from typing import Final

from busway.errors import AuthenticationFailed, BuswayError, ConnectionFailed
from busway.security.options import SecurityOptions

logger: logging.Logger = logging.getLogger("busway.net")

_EXPIRED, _NOT_YET_VALID = 10, 9
_WRONG_NAMES: Final = frozenset({62, 64})
"""OpenSSL's codes of a certificate for another host name or address."""
_UNKNOWN_CA: Final = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's codes of an issuer that is not trusted."""
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"})
_CERTIFICATE_REFUSED: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")
PLAIN_PORT: Final = (
    "; the port may speak plain text: set security_protocol to PLAINTEXT or SASL_PLAINTEXT, or use the port of its TLS "
    "listener"
)
Stamp = tuple[tuple[str, int, int, int], ...]


class TlsContext:
    """The TLS context of an options object; loaded again after a file has changed.

    A file that cannot be used any more leaves the last context in use, with a warning: it may be half written.
    """

    def __init__(self, options: SecurityOptions) -> None:
        self._options = options
        self._stamp: Stamp = ()
        self._context: ssl.SSLContext | None = None

    def current(self) -> ssl.SSLContext:
        """Return the context of the files as they are; reads files, so call it in a thread.

        Raises:
            AuthenticationFailed: a file cannot be used, and none could before.
        """
        try:
            stamp = self._stamps()
            if self._context is None or stamp != self._stamp:
                self._context, self._stamp = self._load(), stamp
        except AuthenticationFailed as problem:
            if self._context is None:
                raise
            logger.warning("%s; connections go on with the files as they were", problem)
        return self._context

    def _stamps(self) -> Stamp:
        options = self._options
        stamps = []
        for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            if path := getattr(options, name):
                try:
                    facts = os.stat(path)
                except OSError as problem:
                    raise AuthenticationFailed(
                        f"{name}: {path} cannot be read, {problem.strerror}; give the path of a PEM file"
                    ) from None
                stamps.append((path, facts.st_mtime_ns, facts.st_size, facts.st_ino))
        return tuple(stamps)

    def _load(self) -> ssl.SSLContext:
        options = self._options
        try:
            context = ssl.create_default_context(cafile=options.ssl_cafile)
        except (OSError, ValueError) as problem:
            raise AuthenticationFailed(
                f"ssl_cafile: {options.ssl_cafile} has no certificates in PEM ({_reason(problem)}); give the CA's "
                "certificates, `-----BEGIN CERTIFICATE-----`"
            ) from None
        context.check_hostname = options.ssl_check_hostname
        if options.ssl_certfile is not None:
            password = options.ssl_password or ""  # else OpenSSL would ask on the terminal
            try:
                context.load_cert_chain(options.ssl_certfile, options.ssl_keyfile, lambda: password)
            except (OSError, ValueError) as problem:
                raise AuthenticationFailed(
                    f"ssl_certfile: {options.ssl_certfile} and its key cannot be used ({_reason(problem)}); give PEM files "
                    "that belong together, and the key's password as ssl_password"
                ) from None
        return context


def explained(problem: BaseException, name: str, host: str) -> BuswayError | None:
    """Return the error of a failed handshake with cause and remedy; None if it is no failure of TLS.

    Args:
        name: the broker's address.
        host: the name that was looked for in its certificate.
    """
    if isinstance(problem, ssl.SSLCertVerificationError):
        return AuthenticationFailed(_of_certificate(problem, name, host))
    if not isinstance(problem, ssl.SSLError):
        return None
    reason = problem.reason or ""
    if reason in _NO_TLS:
        return ConnectionFailed(f"{name} does not answer with TLS{PLAIN_PORT}")
    if "ALERT" in reason and any(word in reason for word in _CERTIFICATE_REFUSED):
        return AuthenticationFailed(
            f"{name} refuses this client's certificate ({_reason(problem)}); give one that its truststore accepts as "
            "ssl_certfile and ssl_keyfile"
        )
    if "ALERT" in reason or "PROTOCOL" in reason or "CIPHER" in reason:
        return AuthenticationFailed(
            f"no TLS connection with {name} ({_reason(problem)}); client and broker have no version or cipher in common, "
            "or the broker requires a client certificate: ssl_certfile"
        )
    return ConnectionFailed(f"the TLS connection to {name} failed ({_reason(problem)})")


def _of_certificate(problem: ssl.SSLCertVerificationError, name: str, host: str) -> str:
    code = problem.verify_code
    if code == _EXPIRED:
        return f"the certificate of {name} has expired; renew it on the broker, and check this machine's clock"
    if code == _NOT_YET_VALID:
        return f"the certificate of {name} is not valid yet; check this machine's clock"
    if code in _WRONG_NAMES:
        return (
            f"the certificate of {name} is not for {host}; connect by a name in its subjectAltName, or set "
            "ssl_check_hostname=False if that is safe in your network"
        )
    if code in _UNKNOWN_CA:
        return (
            f"the certificate of {name} is from a CA that is not trusted here; set ssl_cafile to a PEM file of the CA that "
            "issued it"
        )
    return f"the certificate of {name} is refused: {problem.verify_message}"


def _reason(problem: BaseException) -> str:
    if isinstance(problem, ssl.SSLError):
        return (problem.reason or "not PEM").replace("_", " ").lower()
    return (problem.strerror if isinstance(problem, OSError) else None) or type(problem).__name__
