"""`busway doctor` against servers that refuse, lie about the time, or are in order."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.conftest import Up, run
from tests.support import certificates
from tests.support.certificates import Certificates
from tests.support.secured_broker import SecuredBroker

from busway.cli.cluster_checks import check_cluster
from busway.cli.findings import Finding
from busway.cli.registry_checks import check_registry
from busway.net.machine import OS
from busway.security.options import PLAINTEXT, SecurityOptions
from busway_bus.testing.local_cluster import LocalCluster
from busway_bus.testing.ports import HeldPort

pytestmark = pytest.mark.slow
PASSWORD = "pa55-phrase"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA for this file."""
    return certificates.make(tmp_path_factory.mktemp("certificates"))


def server_tls(file: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


async def first(port: int, **options: Any) -> Finding:
    """What is said of a bootstrap server."""
    security = SecurityOptions(**options) if options else PLAINTEXT
    finding = (await check_cluster(f"127.0.0.1:{port}", security)).findings[0]
    assert finding.subject == f"bootstrap server 127.0.0.1:{port}"
    assert PASSWORD not in finding.text
    assert "\n" not in finding.text
    return finding


@pytest.mark.parametrize(
    ("issued", "text"),
    [
        ({"days": -1}, "has expired; renew it on the broker"),
        ({"names": "DNS:elsewhere"}, "is not for 127.0.0.1; connect by a name in its subjectAltName"),
        (None, "the port may speak plain text: set security_protocol to PLAINTEXT"),
    ],
)
async def test_tls(issued: dict[str, Any] | None, text: str, authority: Certificates) -> None:
    """An expired certificate, one for another host, and a port without TLS."""
    tls = None if issued is None else server_tls(authority.issued(text.split()[1].strip(";"), **issued))
    async with SecuredBroker(tls=tls) as broker:
        finding = await first(broker.port, security_protocol="SSL", ssl_cafile=authority.ca)
    assert finding.level == "problem"
    assert text in finding.text


async def test_plain_text_to_a_port_of_tls(authority: Certificates) -> None:
    """The text names the protocol to set."""
    async with SecuredBroker(tls=server_tls(authority.issued("plain"))) as broker:
        finding = await first(broker.port)
    assert finding.level == "problem"
    assert "set security_protocol to SSL or SASL_SSL" in finding.text


async def test_a_wrong_password() -> None:
    """The user is named, the password is not."""
    async with SecuredBroker(mechanisms=("PLAIN",), users={"ann": "another"}) as broker:
        options = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "ann", "sasl_plain_password": PASSWORD}
        finding = await first(broker.port, security_protocol="SASL_PLAINTEXT", **options)
        assert "refused the user 'ann' by PLAIN: wrong user name or password; check" in finding.text
        finding = await first(broker.port)
    assert "set security_protocol to SASL_SSL or SASL_PLAINTEXT" in finding.text


async def test_brokers_that_cannot_be_reached() -> None:
    """A closed port, a name that does not exist, and an advertised address where nothing listens."""
    held = HeldPort()
    assert (await first(held.number)).text.endswith(
        "nothing listens there: start the broker (`busway up`), or check the port"
    )
    (finding,) = (await check_cluster("no-such-host.invalid:9092", PLAINTEXT)).findings
    assert "check the spelling of the host name" in finding.text
    listening = HeldPort()
    where = {
        "listeners": f"PLAINTEXT://127.0.0.1:{listening.number}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{held.number}",
    }
    async with LocalCluster(properties=where):
        checks = await check_cluster(f"127.0.0.1:{listening.number}", PLAINTEXT)
    (finding,) = [finding for finding in checks.findings if finding.level == "problem"]
    assert finding.subject == "broker 1"
    assert finding.text.endswith("; this is the address that the broker advertises, check advertised.listeners")


async def test_a_certificate_that_soon_expires(authority: Certificates) -> None:
    """A warning; and a broker that serves too little is one of another time."""
    async with SecuredBroker(tls=server_tls(authority.issued("soon", days=3))) as broker:
        security = SecurityOptions(security_protocol="SSL", ssl_cafile=authority.ca)
        findings = (await check_cluster(f"127.0.0.1:{broker.port}", security)).findings
    texts = [f"{finding.level}: {finding.text}" for finding in findings]
    assert "warning: its certificate expires in 3 days; renew it on the broker" in texts
    assert any(text.startswith("problem: no version of Produce, Fetch, ListOffsets and") for text in texts)


async def test_a_controller_with_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the cluster is that of its controller."""
    async with LocalCluster() as cluster:
        (clock,) = [
            finding
            for finding in (await check_cluster(cluster.bootstrap_servers, PLAINTEXT)).findings
            if finding.subject == "controller"
        ]
        assert clock.level == "ok"
        assert cluster.node is not None
        later = lambda: OS.wall_ms() + 90_000  # noqa: E731 - the clock of another machine
        monkeypatch.setattr(cluster.node.services, "machine", _machine(later))
        findings = (await check_cluster(cluster.bootstrap_servers, PLAINTEXT)).findings
    assert [finding.text[:33] for finding in findings if finding.level == "problem"] == [
        "its clock is 90 s ahead of this m"
    ]


def _machine(wall_ms: Any) -> Any:
    import dataclasses

    return dataclasses.replace(OS, wall_ms=wall_ms)


@asynccontextmanager
async def registry(status: str, body: str, *, ahead_s: float = 0) -> AsyncIterator[str]:
    """An HTTP server with one answer, and its own time."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        date = formatdate(time.time() + ahead_s, usegmt=True)
        head = f"HTTP/1.1 {status}\r\nDate: {date}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_the_registry() -> None:
    """Away, refusing, of another release, with another time."""
    held = HeldPort()
    url = f"http://127.0.0.1:{held.number}"
    assert [finding.level for finding in await check_registry(url, given=True)] == ["problem"]
    (finding,) = await check_registry(url, given=False)
    assert (finding.level, finding.text.endswith("--no-registry leaves this check out")) == ("warning", True)
    async with registry("401 Unauthorized", '{"error_code": 401, "message": "Unauthorized"}') as url:
        (finding,) = await check_registry(url, given=True)
    assert finding.level == "problem"
    assert "the user name, password or token is wrong or missing: set BUSWAY_SCHEMA_REGISTRY_BASIC" in finding.text
    async with registry("200 OK", '{"version": "0.0.9", "commitId": "busway"}', ahead_s=-300) as url:
        findings = await check_registry(url, given=True)
    assert [finding.level for finding in findings] == ["ok", "warning", "problem"]
    assert "of busway 0.0.9" in findings[1].text
    assert "s behind this machine's" in findings[2].text


def test_all_in_order(up: Up) -> None:
    """Exit code 0, and a line for each check; 1 with a problem."""
    data = Path(up.started["data"])
    done = up.run("doctor", "--data", str(data))
    lines = done.out.splitlines()
    assert done.code == 0, lines
    subjects = [line[9:].split()[0].rstrip(":") for line in lines]
    assert subjects == ["bootstrap", "controller", "broker", "partitions", "schema", "schema", "data"]
    done = run("doctor", "-b", up.bootstrap, "-r", "http://127.0.0.1:1", "--data", str(data), "--json")
    assert done.code == 1
    assert [finding["subject"] for finding in done.json if finding["level"] == "problem"] == [
        "schema registry http://127.0.0.1:1"
    ]
