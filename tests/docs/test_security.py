"""The blocks of docs/SECURITY.md connect, are read, and mean what the page says."""

import dataclasses
import re
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.support import certificates
from tests.support.secured_broker import SecuredBroker

from busway import App, SecurityOptions
from busway.security.properties import options_from_environment, options_from_properties, options_of
from busway_connect.cli_entry import read_properties
from busway_connect.config import WorkerConfig
from busway_connect.overrides import inherited
from busway_connect.providers import Providers

PAGE = (Path(__file__).parents[2] / "docs" / "SECURITY.md").read_text()


def blocks(language: str) -> list[str]:
    """The page's blocks of a language."""
    return re.findall(rf"```{language}(?: \w+)?\n(.*?)```", PAGE, re.DOTALL)


def run(number: int) -> dict[str, Any]:
    """What the page's code of that number defines."""
    names: dict[str, Any] = {}
    exec(blocks("python")[number], names)
    return names


@pytest.mark.slow
async def test_a_client_with_tls_and_a_password(tmp_path: Path) -> None:
    """Against a listener with SASL_SSL."""
    authority = certificates.make(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.issued("broker"))
    async with SecuredBroker(tls=tls, mechanisms=("SCRAM-SHA-512",), users={"shop": "s3cret"}) as broker:
        assert await run(0)["topics"](f"127.0.0.1:{broker.port}", authority.ca, "s3cret") == []


async def test_a_client_with_a_token() -> None:
    """Which the page's function returns."""
    names = run(1)
    async with SecuredBroker(mechanisms=("OAUTHBEARER",), tokens={await names["token"]()}) as broker:
        assert await names["topics_by_token"](f"127.0.0.1:{broker.port}") == []


@pytest.mark.slow
async def test_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secured outside of its test."""
    monkeypatch.setenv("SHOP_PASSWORD", "s3cret")
    names = run(2)
    app: App = names["app"]
    assert app.security.sasl_plain_password == "s3cret"
    async with app.test() as bus:
        await bus.send(names["orders"], "a", key="k")
        await bus.settle()
    assert names["handled"] == ["a"]


def test_the_environment_and_the_file() -> None:
    """Both say what the page says."""
    (console,) = blocks("console")
    environment = dict(re.findall(r"^\$ export (\w+)=(.*)$", console, re.MULTILINE))
    assert options_from_environment(environment) == SecurityOptions(
        security_protocol="SSL", ssl_cafile="/etc/kafka/ca.pem"
    )
    properties, _ = blocks("properties")
    assert options_from_properties(properties, "client.properties") == SecurityOptions(
        security_protocol="SASL_SSL",
        ssl_cafile="/etc/kafka/ca.pem",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="shop",
        sasl_plain_password="pa55-phrase",
    )


def test_the_workers_file(tmp_path: Path) -> None:
    """Its own clients and its sources have different users; the passwords come from the file of secrets."""
    _, worker = blocks("properties")
    (tmp_path / "secrets").write_text("password=s3cret\nsources=0ther\n")
    file = tmp_path / "worker.properties"
    file.write_text(worker.replace("/etc/kafka", str(tmp_path)))
    config = WorkerConfig.from_properties(read_properties(file))
    own, sources = (
        options_of(Providers(config.providers).resolved(properties))
        for properties in (config.security, producer_part(config))
    )
    assert own is not None
    assert sources is not None
    assert (own.sasl_plain_username, own.sasl_plain_password) == ("connect", "s3cret")
    assert (sources.sasl_plain_username, sources.sasl_plain_password) == ("sources", "0ther")
    assert sources.security_protocol == "SASL_SSL"


def producer_part(config: WorkerConfig) -> dict[str, str]:
    """The settings of a source's producer, under a client's names."""
    prefix = "producer.override."
    given = inherited(config.clients, config.security)
    return {name.removeprefix(prefix): text for name, text in given.items() if name.startswith(prefix)}


def test_the_tests_of_the_table_exist() -> None:
    """Each letter of the two tables has a test, and each test exists."""
    named = dict(re.findall(r"^\| ([A-Z]) \| (`tests/.*) \|$", PAGE, re.MULTILINE))
    for line in named.values():
        file, *tests = re.findall(r"`([^`]+)`", line)
        text = (Path(__file__).parents[2] / file).read_text()
        assert [test for test in tests if f"def {test}(" not in text] == []
    cells = re.findall(r"(?<=\| )([A-Z](?:, [A-Z])*)(?= \|)", PAGE)
    assert {letter for cell in cells for letter in cell.split(", ")} == set(named)


def test_every_option_is_on_the_page() -> None:
    """In its table."""
    assert [option.name for option in dataclasses.fields(SecurityOptions) if f"`{option.name}`" not in PAGE] == []
