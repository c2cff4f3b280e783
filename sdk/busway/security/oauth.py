"""Bearer tokens by client credentials (RFC 6749, section 4.4).

Here: requesting a token, its age.
Not here: tokens of a user's function (`busway.net.sasl`), sending them (`mechanisms`).
"""

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Final

from busway.errors import AuthenticationFailed, ConnectionFailed
from busway.security.options import SecurityOptions

_TIMEOUT_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 1024 * 1024
_USED_SHARE: Final = 0.8
"""Part of a token's life after which it is replaced; Kafka's sasl.login.refresh.window.factor."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token.

    Attributes:
        usable_s: seconds after which it is replaced; 0 for one that is not kept.
    """

    value: str = field(repr=False)
    usable_s: float


def request_token(options: SecurityOptions) -> Token:
    """Request a token; blocks, so call it in a thread.

    Raises:
        AuthenticationFailed: the endpoint refused the client, or its answer is no token.
        ConnectionFailed: the endpoint cannot be reached, or is overloaded.
    """
    url = options.sasl_oauthbearer_token_endpoint_url
    assert url is not None
    shown = urllib.parse.urlsplit(url).hostname
    form = {"grant_type": "client_credentials"}
    if options.sasl_oauthbearer_scope:
        form["scope"] = options.sasl_oauthbearer_scope
    identity = (
        f"{options.sasl_oauthbearer_client_credentials_client_id}"
        f":{options.sasl_oauthbearer_client_credentials_client_secret}"
    )
    request = urllib.request.Request(  # noqa: S310 - SecurityOptions admits http and https only
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": f"Basic {base64.b64encode(identity.encode()).decode()}",
            "Accept": "application/json",
        },
    )
    try:
        opener = urllib.request.build_opener(_NoRedirects(), urllib.request.HTTPSHandler(context=_context(options)))
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            body = answer.read(_ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as problem:
        problem.close()
        if problem.code >= 500 or problem.code == 429:
            raise ConnectionFailed(f"the token endpoint {shown} answered {problem.code}; it may work later") from None
        raise AuthenticationFailed(
            f"the token endpoint {shown} refused the client with {problem.code}; check client id, secret, scope and address"
        ) from None
    except (OSError, ssl.SSLError) as problem:
        reason = problem.reason if isinstance(problem, urllib.error.URLError) else problem
        raise ConnectionFailed(f"the token endpoint {shown} cannot be reached: {reason}") from None
    except http.client.HTTPException as problem:
        raise ConnectionFailed(
            f"the token endpoint {shown} does not speak HTTP ({type(problem).__name__}); check its address and port"
        ) from None
    try:
        fields = json.loads(body)
        token, lifetime_s = fields["access_token"], float(fields.get("expires_in") or 0)
    except (ValueError, KeyError, TypeError, AttributeError):
        token, lifetime_s = None, 0.0
    if not isinstance(token, str):
        raise AuthenticationFailed(f"the token endpoint {shown} answered without an access_token; check its address")
    return Token(token, max(0.0, lifetime_s * _USED_SHARE))


def _context(options: SecurityOptions) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if options.ssl_cafile:  # beside those of the operating system: the endpoint may have another CA than the brokers
        context.load_verify_locations(options.ssl_cafile)
    return context


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which could carry the client's secret to another host."""

    def redirect_request(self, *_: object) -> None:
        return None
