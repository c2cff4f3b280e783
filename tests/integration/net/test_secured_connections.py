"""Opening a connection with TLS and SASL: each mechanism, each cause of a refusal, and authenticating again."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.support import certificates
from tests.support.certificates import Certificates
from tests.support.patience import patient
from tests.support.secured_broker import SecuredBroker

from busway.admin.admin import Admin
from busway.errors import AuthenticationFailed, ConnectionFailed
from busway.net import connection as connection_module
from busway.net.connection import Connection
from busway.net.sasl import ClientSecurity
from busway.security.options import SecurityOptions
from busway_protocol.messages.metadata import MetadataRequest

SECRET = "pa55-phrase"
USER: dict[str, Any] = {"sasl_plain_username": "ann", "sasl_plain_password": SECRET}
PLAIN: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", **USER}
ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA for this file's tests."""
    return certificates.make(tmp_path_factory.mktemp("certificates"))


def serving(file: str, client_ca: str | None = None) -> ssl.SSLContext:
    """A broker's TLS context; with `client_ca` it requires a client's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def opened(broker: SecuredBroker, host: str = "127.0.0.1", **options: Any) -> Connection:
    """A connection with these options, after its first request."""
    security = ClientSecurity(SecurityOptions(**options))
    connection = Connection(host, broker.port, client_id="test", timeout_s=patient(10), security=security)
    await connection.connect()
    await connection.request(MetadataRequest(topics=[]))
    return connection


@pytest.mark.parametrize("mechanism", ALL)
async def test_each_mechanism(mechanism: str) -> None:
    """The request after the exchange is answered."""
    given: dict[str, Any] = {"sasl_oauth_token_provider": lambda: "t0ken"} if mechanism == "OAUTHBEARER" else USER
    async with SecuredBroker(mechanisms=ALL, users={"ann": SECRET}, tokens={"t0ken"}) as broker:
        connection = await opened(broker, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, **given)
        assert connection.open
        connection.close()


async def test_an_awaited_token() -> None:
    """A provider may be a coroutine function; one that fails is named without its text."""

    async def token() -> str:
        await asyncio.sleep(0)
        return "t0ken"

    def broken() -> str:
        raise RuntimeError(SECRET)

    oauth = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    async with SecuredBroker(mechanisms=ALL, tokens={"t0ken"}) as broker:
        (await opened(broker, **oauth, sasl_oauth_token_provider=token)).close()
        with pytest.raises(AuthenticationFailed, match="sasl_oauth_token_provider raised RuntimeError") as refused:
            await opened(broker, **oauth, sasl_oauth_token_provider=broken)
        assert SECRET not in str(refused.value)
        with pytest.raises(
            AuthenticationFailed, match="refused the token: the token was refused: status invalid_token"
        ):
            await opened(broker, **oauth, sasl_oauth_token_provider=lambda: "other")


@pytest.mark.parametrize(
    ("options", "mechanisms", "text"),
    [
        (
            PLAIN | {"sasl_plain_password": "wr0ng"},
            ALL,
            "refused the user 'ann' by PLAIN: wrong user name or password; check",
        ),
        (
            PLAIN | {"sasl_plain_password": "wr0ng", "sasl_mechanism": "SCRAM-SHA-256"},
            ALL,
            "refused the user 'ann' by SCRAM-SHA-256: wrong user name or password",
        ),
        (PLAIN, ("SCRAM-SHA-256",), "has SCRAM-SHA-256 enabled, not PLAIN; set sasl_mechanism to one of them"),
        (PLAIN, None, "has no SASL on this port; set security_protocol to PLAINTEXT or SSL"),
    ],
)
async def test_refusals_name_cause_and_remedy(
    options: dict[str, Any], mechanisms: tuple[str, ...] | None, text: str
) -> None:
    """In one line, with the address and without the password."""
    async with SecuredBroker(mechanisms=mechanisms, users={"ann": SECRET}) as broker:
        with pytest.raises(AuthenticationFailed, match=text) as refused:
            await opened(broker, **options)
    shown = str(refused.value)
    assert f"127.0.0.1:{broker.port}" in shown
    assert "\n" not in shown
    assert not {SECRET, "wr0ng"} & set(shown.split())


async def test_a_server_that_does_not_know_the_password_is_refused() -> None:
    """The client verifies its signature: it may be a server in between."""

    async with SecuredBroker(mechanisms=("SCRAM-SHA-256",), users={"ann": SECRET}, proves=False) as broker:
        with pytest.raises(AuthenticationFailed, match="the server has not proved that it knows the password"):
            await opened(broker, **PLAIN | {"sasl_mechanism": "SCRAM-SHA-256"})


async def test_without_sasl_on_a_port_that_requires_it() -> None:
    """The broker ends the connection at the first request; the text says what it may be."""
    async with SecuredBroker(mechanisms=ALL) as broker:
        with pytest.raises(
            ConnectionFailed, match="ended at the first request; if the port requires SASL, set security"
        ):
            await opened(broker)


async def test_a_client_that_tries_again_still_says_so() -> None:
    """It has reached the address by then, but nothing worked there."""
    async with SecuredBroker(mechanisms=ALL) as broker:
        with pytest.raises(ConnectionFailed, match="; if the port requires SASL, set security_protocol"):
            await Admin(f"127.0.0.1:{broker.port}").start()


# TLS


@pytest.mark.slow
async def test_tls_with_the_right_ca(authority: Certificates) -> None:
    """And SASL within it."""
    file = authority.issued("broker")
    async with SecuredBroker(tls=serving(file), mechanisms=ALL, users={"ann": SECRET}) as broker:
        connection = await opened(broker, **PLAIN | {"security_protocol": "SASL_SSL", "ssl_cafile": authority.ca})
        assert connection.open
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("certificate", "options", "text"),
    [
        ({"days": -1}, {}, "the certificate of 127.0.0.1:.* has expired; renew it on the broker"),
        ({"names": "DNS:elsewhere"}, {}, "is not for 127.0.0.1; connect by a name in its subjectAltName"),
        ({"names": "IP:10.0.0.1"}, {}, "is not for 127.0.0.1; connect by a name in its subjectAltName"),
        ({}, {"ssl_cafile": "other_ca"}, "is from a CA that is not trusted here; set ssl_cafile"),
        ({}, {"ssl_cafile": None}, "is from a CA that is not trusted here; set ssl_cafile"),
        ({}, {"ssl_cafile": "absent.pem"}, "ssl_cafile: absent.pem cannot be read, No such file or directory; give"),
        ({}, {"ssl_cafile": __file__}, "ssl_cafile: .* has no certificates in PEM"),
        ({}, {"ssl_certfile": __file__}, "ssl_certfile: .* and its key cannot be used"),
    ],
)
async def test_certificates_that_are_refused(
    authority: Certificates, certificate: dict[str, Any], options: dict[str, Any], text: str
) -> None:
    """Each with its cause, before anything is sent."""
    file = authority.issued("refused", **certificate)
    cafile = options.get("ssl_cafile", authority.ca)
    given = options | {"ssl_cafile": authority.other_ca if cafile == "other_ca" else cafile}
    async with SecuredBroker(tls=serving(file)) as broker:
        with pytest.raises(AuthenticationFailed, match=text):
            await opened(broker, security_protocol="SSL", **given)
    assert broker.seen == []


@pytest.mark.slow
async def test_the_check_of_the_host_name_can_be_left_out(authority: Certificates) -> None:
    """The CA is verified nevertheless."""
    file = authority.issued("elsewhere", names="DNS:elsewhere")
    async with SecuredBroker(tls=serving(file)) as broker:
        given: dict[str, Any] = {"security_protocol": "SSL", "ssl_check_hostname": False}
        (await opened(broker, **given, ssl_cafile=authority.ca)).close()
        with pytest.raises(AuthenticationFailed, match="a CA that is not trusted here"):
            await opened(broker, **given, ssl_cafile=authority.other_ca)


@pytest.mark.slow
async def test_a_client_certificate(authority: Certificates) -> None:
    """Required by the broker, with a key under a password; without it, or with a wrong password, the text says so."""
    client = authority.issued("client", password=certificates.PASSWORD)
    tls: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": authority.ca}
    async with SecuredBroker(tls=serving(authority.issued("mutual"), authority.ca)) as broker:
        (await opened(broker, **tls, ssl_certfile=client, ssl_password=certificates.PASSWORD)).close()
        with pytest.raises(ConnectionFailed, match=r"client('s)? certificate.*ssl_certfile and ssl_keyfile"):
            await opened(broker, **tls)
        with pytest.raises(AuthenticationFailed, match="the key's password as ssl_password") as refused:
            await opened(broker, **tls, ssl_certfile=client, ssl_password=SECRET)
        assert SECRET not in str(refused.value)
        with pytest.raises(AuthenticationFailed, match="the key's password as ssl_password"):
            await opened(broker, **tls, ssl_certfile=client)


@pytest.mark.slow
async def test_files_are_read_again_after_a_change(authority: Certificates, tmp_path: Path) -> None:
    """New connections use the new CA; a file that became unusable leaves the last one in use, with a warning."""
    cafile = tmp_path / "ca.pem"
    cafile.write_text(Path(authority.other_ca).read_text())
    security = ClientSecurity(SecurityOptions(security_protocol="SSL", ssl_cafile=str(cafile)))

    async def connect(broker: SecuredBroker) -> None:
        connection = Connection("127.0.0.1", broker.port, client_id="t", timeout_s=patient(10), security=security)
        await connection.connect()
        connection.close()

    async with SecuredBroker(tls=serving(authority.issued("rotated"))) as broker:
        with pytest.raises(AuthenticationFailed, match="not trusted"):
            await connect(broker)
        cafile.write_text(Path(authority.ca).read_text() + "\n")
        await connect(broker)
        cafile.write_text("half written")
        await connect(broker)
        cafile.unlink()
        await connect(broker)


@pytest.mark.slow
async def test_plain_text_and_tls_that_meet(authority: Certificates) -> None:
    """Both ways round the text says which protocol the port may have."""
    async with SecuredBroker() as broker:
        with pytest.raises(ConnectionFailed, match="the port may speak plain text: set security_protocol to PLAINTEXT"):
            await opened(broker, security_protocol="SSL", ssl_cafile=authority.ca)
    async with SecuredBroker(tls=serving(authority.issued("plain"))) as broker:
        with pytest.raises(ConnectionFailed, match="set security_protocol to SSL or SASL_SSL"):
            await opened(broker)


# Authenticating again (KIP-368)


async def test_a_session_is_renewed_and_no_request_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of before are answered, later ones held and sent in their order; none comes between SASL's own."""
    monkeypatch.setattr(connection_module, "SESSION_SHARE", (0.0, 0.0))  # due at once
    async with SecuredBroker(mechanisms=ALL, users={"ann": SECRET}, lifetime_ms=3_600_000) as broker:
        connection = await opened(broker, **PLAIN | {"sasl_mechanism": "SCRAM-SHA-256"})
        opening = ["ApiVersions", "SaslHandshake", "SaslAuthenticate", "SaslAuthenticate"]
        renewal = opening[1:]
        assert broker.seen == [*opening, *renewal, "Metadata"]
        broker.seen.clear()
        asked = [asyncio.ensure_future(connection.request(MetadataRequest(topics=[]))) for _ in range(5)]
        await asyncio.gather(*asked)
        assert broker.seen == [*renewal, *["Metadata"] * 5]
        connection.close()


async def test_a_renewal_that_is_refused_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests that were held fail with its reason."""
    async with SecuredBroker(mechanisms=ALL, users={"ann": SECRET}, lifetime_ms=3_600_000) as broker:
        monkeypatch.setattr(connection_module, "SESSION_SHARE", (0.5, 0.6))
        connection = await opened(broker, **PLAIN)
        monkeypatch.setattr(connection, "_renew_at_s", 0.0)
        broker.users["ann"] = "changed"
        asked = [asyncio.ensure_future(connection.request(MetadataRequest(topics=[]))) for _ in range(3)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [AuthenticationFailed] * 3
        assert not connection.open
        assert isinstance(connection.problem, AuthenticationFailed)
