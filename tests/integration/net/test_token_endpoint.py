"""OAUTHBEARER by client credentials, against a token endpoint in this process."""

import asyncio
import base64
import logging
import ssl
from typing import Any

import pytest
from tests.support import certificates
from tests.support.certificates import Certificates
from tests.support.secured_broker import SecuredBroker
from tests.support.token_endpoint import Endpoint, serving
from tests.support.waiting import until

from busway import Admin, AuthenticationFailed, ConnectionFailed, SecurityOptions
from busway.security.oauth import Token, request_token

SECRET = "cl1ent-s3cret"


def options(url: str, **more: Any) -> SecurityOptions:
    """Client credentials for that endpoint."""
    given = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": url,
        "sasl_oauthbearer_client_credentials_client_id": "shop",
        "sasl_oauthbearer_client_credentials_client_secret": SECRET,
        **more,
    }
    return SecurityOptions(**given)


async def requested(given: SecurityOptions) -> Token:
    """As the client does it, in a thread."""
    return await asyncio.get_running_loop().run_in_executor(None, request_token, given)


async def test_a_token_is_requested_with_the_clients_credentials() -> None:
    """In the header, as Kafka's client sends them; the token is used for 80 % of its life."""
    async with serving(Endpoint()) as endpoint:
        token = await requested(options(endpoint.url, sasl_oauthbearer_scope="orders read"))
        assert (token.value, token.usable_s) == ("t0ken", 80.0)
        header = f"Basic {base64.b64encode(f'shop:{SECRET}'.encode()).decode()}"
        form = {"grant_type": ["client_credentials"], "scope": ["orders read"]}
        assert endpoint.requests == [(header, form)]
        assert "t0ken" not in repr(token)
        endpoint.body = b'{"access_token": "t0ken"}'
        assert (await requested(options(endpoint.url))).usable_s == 0


async def authenticated_again(admin: Admin, broker: SecuredBroker) -> bool:
    """Ask; whether the connection has authenticated three times."""
    await admin.list_topics()
    return broker.seen.count("SaslAuthenticate") >= 3


@pytest.mark.parametrize(
    ("endpoint", "problem", "text"),
    [
        (Endpoint(status="401 Unauthorized"), AuthenticationFailed, "refused the client with 401; check client id, secret"),
        (Endpoint(status="400 Bad Request"), AuthenticationFailed, "refused the client with 400"),
        (Endpoint(status="302 Found", head="Location: http://127.0.0.1:1/\r\n"), AuthenticationFailed, "with 302"),
        (Endpoint(status="429 Too Many Requests"), ConnectionFailed, "answered 429; it may work later"),
        (Endpoint(status="503 Service Unavailable"), ConnectionFailed, "answered 503; it may work later"),
        (Endpoint(body=b"<html>"), AuthenticationFailed, "without an access_token; check its address"),
        (Endpoint(body=b'["t0ken"]'), AuthenticationFailed, "without an access_token"),
        (Endpoint(body=b'{"access_token": 7}'), AuthenticationFailed, "without an access_token"),
        (Endpoint(body=b'{"access_token": "t0ken", "expires_in": "soon"}'), AuthenticationFailed, "without an access_token"),
        (Endpoint(raw=b"SSH-2.0-server\r\n"), ConnectionFailed, "does not speak HTTP .BadStatusLine.; check its address"),
        (Endpoint(raw=b""), ConnectionFailed, "cannot be reached"),
    ],
)  # fmt: skip
async def test_each_refusal_is_one_line(endpoint: Endpoint, problem: type[Exception], text: str) -> None:
    """With the endpoint's host and a remedy, without the secret or the token; no redirect is followed."""
    async with serving(endpoint):
        with pytest.raises(problem, match=text) as refused:
            await requested(options(endpoint.url))
    assert type(refused.value) is problem
    assert "\n" not in str(refused.value)
    assert "127.0.0.1" in str(refused.value)
    assert SECRET not in str(refused.value)
    assert "t0ken" not in str(refused.value)
    assert len(endpoint.requests) == 1


async def test_an_endpoint_that_is_away() -> None:
    """May come back."""
    with pytest.raises(ConnectionFailed, match=r"the token endpoint 127\.0\.0\.1 cannot be reached: .*refused"):
        await requested(options("http://127.0.0.1:1/token"))


@pytest.mark.slow
async def test_an_endpoint_with_https(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Its certificate is verified with ssl_cafile beside the operating system's CAs."""
    authority: Certificates = certificates.make(tmp_path_factory.mktemp("certificates"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.issued("endpoint"))
    async with serving(Endpoint(), tls) as endpoint:
        secured = {"security_protocol": "SASL_SSL"}
        assert (await requested(options(endpoint.url, ssl_cafile=authority.ca, **secured))).value == "t0ken"
        with pytest.raises(ConnectionFailed, match="certificate verify failed"):
            await requested(options(endpoint.url, ssl_cafile=authority.other_ca, **secured))


async def test_a_client_keeps_its_token_and_replaces_a_refused_one(caplog: pytest.LogCaptureFixture) -> None:
    """One request serves all authentications; a token that the broker refuses is not used again, and neither is logged."""
    caplog.set_level(logging.DEBUG)
    endpoint = Endpoint()
    endpoint.grants("g00d")
    async with serving(endpoint), SecuredBroker(mechanisms=("OAUTHBEARER",), tokens={"g00d"}) as broker:
        where, given = f"127.0.0.1:{broker.port}", options(endpoint.url)
        broker.lifetime_ms = 50
        async with Admin(where, security=given) as admin:
            await until(lambda: authenticated_again(admin, broker))
            assert len(endpoint.requests) == 1
        broker.lifetime_ms = 0
        endpoint.grants("st0len")
        with pytest.raises(AuthenticationFailed, match="refused the token") as refused:
            await Admin(where, security=given).start()
        endpoint.grants("g00d")
        admin = Admin(where, security=given)
        endpoint.grants("st0len")
        with pytest.raises(AuthenticationFailed):
            await admin.start()
        endpoint.grants("g00d")
        async with admin:
            await admin.list_topics()
    shown = f"{refused.value}{caplog.text}"
    assert not [secret for secret in (SECRET, "g00d", "st0len") if secret in shown]


async def test_a_token_that_is_old_is_replaced() -> None:
    """One that lives for 0 seconds is requested for each authentication."""
    endpoint = Endpoint()
    endpoint.grants("g00d", expires_in=0)
    async with serving(endpoint), SecuredBroker(mechanisms=("OAUTHBEARER",), tokens={"g00d"}) as broker:
        broker.lifetime_ms = 50
        async with Admin(f"127.0.0.1:{broker.port}", security=options(endpoint.url)) as admin:
            await until(lambda: authenticated_again(admin, broker))
            assert len(endpoint.requests) >= 3
