"""SASL on a connection: KIP-43's handshake, KIP-152's framing.

Here: `ClientSecurity`, what the connections of a client share; `authenticate`, one authentication.
Not here: the mechanisms (`busway.security`), when to authenticate again (`connection`).
"""

import asyncio
import inspect
import secrets  # noqa: TID251 - a nonce that cannot be guessed; simulated machines have no SASL
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from busway.errors import AuthenticationFailed, BuswayError
from busway.net.clock import REAL_TIME
from busway.net.tls import TlsContext
from busway.security.mechanisms import Exchange, MechanismFailed, OAuthBearer, Plain
from busway.security.options import SecurityOptions
from busway.security.scram import Scram
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from busway.security.oauth import Token

Ask = Callable[[Any], Awaitable[Any]]
"""Sends a request on the connection and returns its response."""
_STEPS_MAX: Final = 8
"""Messages of one exchange; SCRAM has four."""
_TOKEN_TIMEOUT_S: Final = 30.0


class ClientSecurity:
    """Security of one client's connections: its TLS context and its token."""

    def __init__(self, options: SecurityOptions) -> None:
        self.options = options
        self._tls = TlsContext(options)
        self._token: Token | None = None
        self._token_until_s = 0.0

    async def tls_context(self) -> ssl.SSLContext | None:
        """Return the context of new connections; None without TLS. Files are read by a thread.

        Raises:
            AuthenticationFailed: a file cannot be used.
        """
        if not self.options.uses_tls:
            return None
        return await asyncio.get_running_loop().run_in_executor(None, self._tls.current)

    async def exchange(self) -> Exchange:
        """Begin an exchange of the mechanism, with a token that is not too old.

        Raises:
            AuthenticationFailed, ConnectionFailed: no token.
            MechanismFailed: the credentials cannot be sent by this mechanism.
        """
        options = self.options
        if options.sasl_mechanism == "OAUTHBEARER":
            return OAuthBearer(await self._current_token())
        assert options.sasl_plain_username is not None
        assert options.sasl_plain_password is not None
        if options.sasl_mechanism == "PLAIN":
            return Plain(options.sasl_plain_username, options.sasl_plain_password)
        assert options.sasl_mechanism is not None
        nonce = secrets.token_urlsafe(24)
        return Scram(options.sasl_mechanism, options.sasl_plain_username, options.sasl_plain_password, nonce)

    def forget_token(self) -> None:
        self._token = None

    async def _current_token(self) -> str:
        provider = self.options.sasl_oauth_token_provider
        if provider is not None:
            return await _provided(provider)
        if self._token is None or REAL_TIME.now_s() >= self._token_until_s:
            from busway.security.oauth import (
                request_token,
            )  # it loads an HTTP client, which most connections do not need

            self._token = await asyncio.get_running_loop().run_in_executor(None, request_token, self.options)
            self._token_until_s = REAL_TIME.now_s() + self._token.usable_s
        return self._token.value


async def _provided(provider: Callable[[], Any]) -> str:
    try:
        async with REAL_TIME.timeout(_TOKEN_TIMEOUT_S):
            token = provider()
            if inspect.isawaitable(token):
                token = await token
    except BuswayError:
        raise
    except Exception as problem:  # the user's function may raise anything, and its text may hold a secret
        raise AuthenticationFailed(
            f"sasl_oauth_token_provider raised {type(problem).__name__}; it must return a token"
        ) from problem
    if not isinstance(token, str):
        raise AuthenticationFailed(
            f"sasl_oauth_token_provider returned a {type(token).__name__}; it must return a text"
        )
    return token


async def authenticate(ask: Ask, security: ClientSecurity, name: str) -> int:
    """Authenticate a connection; return for how many ms, 0 for ever (KIP-368).

    Args:
        name: the broker's address, for error texts.

    Raises:
        AuthenticationFailed: the broker refused, or did not prove its own knowledge of the password.
        ConnectionFailed, RequestTimedOut: no answer.
    """
    mechanism = security.options.sasl_mechanism
    assert mechanism is not None
    try:
        exchange = await security.exchange()
        await _shake_hands(ask, mechanism, name)
        return await _exchange(ask, exchange, security, name)
    except MechanismFailed as problem:
        security.forget_token()
        raise AuthenticationFailed(f"no authentication by {mechanism} with {name}: {problem}") from None


async def _shake_hands(ask: Ask, mechanism: str, name: str) -> None:
    answer: SaslHandshakeResponse = await ask(SaslHandshakeRequest(mechanism=mechanism))
    code = error_for(answer.error_code)
    if code is ErrorCode.NONE:
        return
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM and answer.mechanisms:
        raise AuthenticationFailed(
            f"{name} has {', '.join(answer.mechanisms)} enabled, not {mechanism}; set sasl_mechanism to one of them, or "
            "enable it by the broker's sasl.enabled.mechanisms"
        )
    if code in {ErrorCode.UNSUPPORTED_SASL_MECHANISM, ErrorCode.ILLEGAL_SASL_STATE}:
        raise AuthenticationFailed(
            f"{name} has no SASL on this port; set security_protocol to PLAINTEXT or SSL, or use the port of its SASL listener"
        )
    raise AuthenticationFailed(f"{name} refused to authenticate by {mechanism}: {code.text} ({code.name})")


async def _exchange(ask: Ask, exchange: Exchange, security: ClientSecurity, name: str) -> int:
    challenge = b""
    lifetime_ms = 0
    loop = asyncio.get_running_loop()
    for _ in range(_STEPS_MAX):
        if isinstance(exchange, Scram):  # many hashes
            message = await loop.run_in_executor(None, exchange.step, challenge)
        else:
            message = exchange.step(challenge)
        if message is None:
            return lifetime_ms
        answer: SaslAuthenticateResponse = await ask(SaslAuthenticateRequest(auth_bytes=message))
        code = error_for(answer.error_code)
        if code is not ErrorCode.NONE:
            security.forget_token()
            raise AuthenticationFailed(_refusal(answer, code, exchange, security.options, name))
        challenge, lifetime_ms = bytes(answer.auth_bytes), answer.session_lifetime_ms
    raise MechanismFailed(f"the server has not ended the exchange after {_STEPS_MAX} messages")


def _refusal(
    answer: SaslAuthenticateResponse, code: ErrorCode, exchange: Exchange, options: SecurityOptions, name: str
) -> str:
    mechanism = options.sasl_mechanism
    if isinstance(exchange, OAuthBearer):
        return (
            f"{name} refused the token: {exchange.refusal or code.name}; check its issuer, audience, scope and expiry, and "
            "the broker's clock"
        )
    if code is ErrorCode.SASL_AUTHENTICATION_FAILED:
        return (
            f"{name} refused the user {options.sasl_plain_username!r} by {mechanism}: wrong user name or password; check "
            "sasl_plain_username and sasl_plain_password, and that the broker has this user for this mechanism"
        )
    return f"{name} refused to authenticate by {mechanism}: {answer.error_message or code.text} ({code.name})"
