"""A schema registry behind https, with a password or a token."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support import certificates
from tests.support.certificates import Certificates

from busway.security.registry import RegistrySecurity, registry_security
from busway.serde.registry import RegistryClient, RegistryRefused, RegistryUnreachable

SECRET = "pa55-phrase"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA for this file."""
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def serving(accepted: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """An HTTP server that answers those with this Authorization; its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begin = await reader.read(1)
        if begin == b"\x16":  # a TLS handshake, which a server of HTTP refuses
            writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            await writer.drain()
            writer.close()
            return
        request = (begin + await reader.readuntil(b"\r\n\r\n")).decode()
        right = f"authorization: {accepted}\r\n".lower() in request.lower()
        status, body = (
            ("200 OK", b'["orders"]') if right else ("401 Unauthorized", b'{"error_code":401,"message":"who"}')
        )
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        scheme = "http" if tls is None else "https"
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("security", "accepted"),
    [
        (RegistrySecurity(basic_auth_user_info=f"ann:{SECRET}"), "Basic YW5uOnBhNTUtcGhyYXNl"),
        (RegistrySecurity(bearer_auth_token="t0ken"), "Bearer t0ken"),
    ],
)
async def test_credentials(security: RegistrySecurity, accepted: str) -> None:
    """With them the answer, without them the refusal."""
    async with serving(accepted) as url:
        async with RegistryClient(url, security=security) as registry:
            assert await registry.request("GET", "/subjects") == ["orders"]
        async with RegistryClient(url, security=RegistrySecurity()) as registry:
            with pytest.raises(RegistryRefused, match="who"):
                await registry.request("GET", "/subjects")


@pytest.mark.slow
async def test_https_with_an_own_ca(authority: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is verified; the environment names the CA for apps, commands and Connect."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.issued("registry"))
    async with serving("Bearer t0ken", tls) as url:
        monkeypatch.setenv("BUSWAY_SCHEMA_REGISTRY_SSL_CAFILE", authority.ca)
        monkeypatch.setenv("BUSWAY_SCHEMA_REGISTRY_BEARER_AUTH_TOKEN", "t0ken")
        async with RegistryClient(url) as registry:
            assert await registry.request("GET", "/subjects") == ["orders"]
        for cafile, text in (
            (authority.other_ca, "is not trusted here"),
            ("absent.pem", "absent.pem cannot be used as PEM"),
        ):
            async with RegistryClient(url, security=RegistrySecurity(ssl_cafile=cafile)) as registry:
                with pytest.raises(RegistryUnreachable, match=text):
                    await registry.request("GET", "/subjects")


def test_what_does_not_fit_is_refused_without_the_secret() -> None:
    """And no secret is in the representation."""
    environment = {"BUSWAY_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO": f"ann:{SECRET}"}
    assert SECRET not in repr(registry_security(environment))
    for given in (
        {"basic_auth_user_info": SECRET},
        {"basic_auth_user_info": f"a:{SECRET}", "bearer_auth_token": "t"},
        {"bearer_auth_token": f"{SECRET}\r\n"},
        {"ssl_keyfile": SECRET},
    ):
        with pytest.raises(ValueError, match="_") as refused:
            RegistrySecurity(**given)
        assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("scheme", "issued", "text"),
    [
        ("https", {"days": -1}, "its certificate has expired; renew it there, and check this machine's clock"),
        ("https", {"names": "DNS:elsewhere"}, "its certificate is for another host; give a name in its subjectAltName"),
        ("http", {}, "the port may be one of TLS: give https://"),
        ("https", None, "it does not answer with TLS; the port may speak plain HTTP: give http://"),
    ],
)
async def test_a_failed_connection_names_cause_and_remedy(
    scheme: str, issued: dict[str, Any] | None, text: str, authority: Certificates
) -> None:
    """In one line."""
    tls = None
    if issued is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(authority.issued("a", **issued))
    async with serving("", tls) as url:
        address = f"{scheme}://{url.partition('://')[2]}"
        async with RegistryClient(address, security=RegistrySecurity(ssl_cafile=authority.ca)) as registry:
            with pytest.raises(RegistryUnreachable) as failed:
                await registry.subjects()
    assert str(failed.value).endswith(text)
    assert str(failed.value).startswith(f"the schema registry at {address} does not answer: ")
