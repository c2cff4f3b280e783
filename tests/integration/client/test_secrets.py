"""Passwords, secrets and tokens: in no log, error, representation or process list."""

import asyncio
import dataclasses
import logging
import os
import ssl
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import certificates
from tests.support.patience import patient
from tests.support.programs import end, spawn
from tests.support.secured_broker import SecuredBroker
from tests.support.waiting import until

from busway import (
    Admin,
    App,
    BuswayError,
    Consumer,
    DeadLetters,
    Producer,
    RegistryClient,
    RegistrySecurity,
    SecurityOptions,
    ShareConsumer,
)
from busway_connect.config import WorkerConfig
from busway_connect.runtime.worker import Worker
from busway_spark.security import client_security

SECRETS = {
    "password": "pw-4711-secret",
    "wrong": "pw-0815-secret",
    "token": "tk-4711-secret",
    "client_secret": "cs-4711-secret",
    "key": certificates.PASSWORD,
    "registry": "rg-4711-secret",
    "bearer": "br-4711-secret",
}
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SERVICE = """
from busway import App
app = App("shop", "127.0.0.1:1")
orders = app.topic("orders", key=str, value=str)

@app.subscribe(orders)
async def handle(order: str) -> None: ...
"""


def assert_no_secret(text: str) -> None:
    """No secret is in it, neither as it is nor in the form that a header has."""
    assert [name for name, secret in SECRETS.items() if secret in text] == []


def shown(value: Any, depth: int = 4) -> Iterator[str]:
    """The representation of an object, and of what it holds."""
    yield f"{value!r} {value!s}"
    if depth and not isinstance(value, str | bytes | int | float | type(None)) and not dataclasses.is_dataclass(value):
        held = getattr(value, "__dict__", {})
        for member in held.values() if isinstance(held, dict) else ():
            if type(member).__module__.startswith("busway"):
                yield from shown(member, depth - 1)


def credentials(mechanism: str, secret: str, **more: Any) -> SecurityOptions:
    """Options of a mechanism with that secret."""
    given: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, **more}
    if mechanism == "OAUTHBEARER":
        given["sasl_oauth_token_provider"] = lambda: secret
    else:
        given |= {"sasl_plain_username": "ann", "sasl_plain_password": secret}
    return SecurityOptions(**given)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
async def test_clients_that_connect_and_clients_that_are_refused(
    mechanism: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Logs of every level, exceptions with their causes, and representations, over TLS with a key that has a password."""
    caplog.set_level(logging.DEBUG)
    authority = certificates.make(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.issued("broker"))
    secured = {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": authority.ca,
        "ssl_certfile": authority.issued("client", password=SECRETS["key"]),
        "ssl_password": SECRETS["key"],
    }
    right = SECRETS["token" if mechanism == "OAUTHBEARER" else "password"]
    seen: list[str] = []
    async with SecuredBroker(
        tls=tls, mechanisms=(mechanism,), users={"ann": right}, tokens={right}, lifetime_ms=50
    ) as broker:
        where = f"127.0.0.1:{broker.port}"
        async with Admin(where, security=credentials(mechanism, right, **secured)) as admin:

            async def authenticated_again() -> bool:
                await admin.list_topics()
                return broker.seen.count("SaslHandshake") >= 2

            await until(authenticated_again)
            seen += shown(admin)
        for secret, more in ((SECRETS["wrong"], secured), (right, {**secured, "ssl_password": "wr0ng-k3y"})):
            given = credentials(mechanism, secret, **more)
            seen += shown(given)
            app = App("shop", where, security=given)
            app.subscribe(app.topic("orders", key=str, value=str, format="json"))(handle)
            for client in (
                app,
                Admin(where, security=given),
                Producer(where, security=given),
                Consumer("t", bootstrap_servers=where, group_id="g", security=given),
                ShareConsumer("t", bootstrap_servers=where, group_id="g", security=given),
                DeadLetters(where, security=given),
            ):
                seen += shown(client)
                with pytest.raises(BuswayError) as refused:
                    async with asyncio.timeout(patient(30)), client:
                        pass
                seen += traceback.format_exception(refused.value)
                seen += shown(refused.value)
    assert_no_secret("\n".join([*seen, caplog.text]))


async def handle(order: str) -> None:
    """Of the app."""


async def test_clients_of_a_registry(caplog: pytest.LogCaptureFixture) -> None:
    """With a password in the address or in the options, and a token."""
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []
    for client in (
        RegistryClient(f"http://ann:{SECRETS['registry']}@127.0.0.1:1"),
        RegistryClient("http://127.0.0.1:1", security=RegistrySecurity(basic_auth_user_info=f"ann:{SECRETS['registry']}")),
        RegistryClient("http://127.0.0.1:1", security=RegistrySecurity(bearer_auth_token=SECRETS["bearer"])),
    ):  # fmt: skip
        seen += shown(client)
        with pytest.raises(BuswayError) as refused:
            async with client:
                await client.request("GET", "/subjects")
        seen += traceback.format_exception(refused.value)
    assert_no_secret("\n".join([*seen, caplog.text]))


def test_settings_of_a_worker_and_of_a_job() -> None:
    """Connect's and Spark's."""
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{JAAS} username="ann" password="{SECRETS["password"]}";',
    }
    config = WorkerConfig.from_properties({**client, **{f"producer.{name}": text for name, text in client.items()}})
    spark = client_security({f"kafka.{name}": text for name, text in client.items()})
    oauth = SecurityOptions(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="https://127.0.0.1:1/token",
        sasl_oauthbearer_client_credentials_client_id="shop",
        sasl_oauthbearer_client_credentials_client_secret=SECRETS["client_secret"],
    )
    assert_no_secret("\n".join([*shown(config), *shown(Worker(config, "w")), *shown(spark), *shown(oauth)]))


def command_lines(process: int) -> list[str]:
    """Those of a process and of all below it, as every user of the machine can read them."""
    lines = [Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()]
    for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        lines += command_lines(int(child))
    return lines


@pytest.mark.slow
async def test_processes(tmp_path: Path) -> None:
    """Of a service's workers, whose broker is away, and of a Connect worker: arguments and output."""
    (tmp_path / "service.py").write_text(SERVICE)
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={JAAS} username="ann" password="{SECRETS["password"]}";\n'
    )
    environment = {
        **os.environ,
        "BUSWAY_SCHEMA_REGISTRY": f"http://ann:{SECRETS['registry']}@127.0.0.1:1",
        "BUSWAY_SCHEMA_REGISTRY_BEARER_AUTH_TOKEN": SECRETS["bearer"],
    }
    busway = [sys.executable, "-m", "busway.cli"]
    service = [*busway, "run", "service:app", "--workers", "2", "--wait", "60", "--command-config", str(file)]
    process = spawn(service, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        await until(lambda: sum("busway.cli run" in line for line in command_lines(process.pid)) == 3)
        lines = command_lines(process.pid)
    finally:
        end(process)
    output = process.stdout.read()
    process.stdout.close()
    connect = subprocess.run(
        [*busway, "connect", "--config", str(file), "-b", "127.0.0.1:1", "--port", "0"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert connect.returncode == 1
    assert_no_secret("\n".join([*lines, output, connect.stdout, connect.stderr]))
