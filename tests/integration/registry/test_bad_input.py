"""Media types, and what a hostile or broken client sends: the named outcome, one log line, others undisturbed."""

import asyncio
import json
import logging
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.integration.registry.conftest import JSON, Client
from tests.support.patience import patient

from busway_registry.server import RegistryServer

SCHEMA = b'{"schema":"\\"string\\""}'


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", JSON),
        ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", JSON),
        ("application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
        ("application/json", "application/json"),
        (f"{JSON}, application/vnd.schemaregistry+json, application/json", JSON),
    ],
)
async def test_accept(client: Client, accept: str, kind: str) -> None:
    """Each client gets the media type that it names, everyone else the registry's own; errors too."""
    for path in ("/subjects", "/subjects/x/versions", "/nothing"):
        answer = await client.get(path, headers={"Accept": accept})
        assert answer.headers["content-type"] == kind
        assert answer.headers["cache-control"] == "no-cache, no-store, must-revalidate"
        assert answer.headers["x-xss-protection"] == "1; mode=block"


async def test_content_type(client: Client) -> None:
    """The registry's types, plain JSON, octets and none at all are taken; others are 415."""
    for kind in (
        JSON,
        "application/vnd.schemaregistry+json",
        "application/json; charset=utf-8",
        "application/octet-stream",
        "APPLICATION/JSON",
        None,
    ):
        headers = {"Content-Type": kind} if kind else {}
        assert (await client.call("POST", "/subjects/s/versions", content=SCHEMA, headers=headers)).status == 200
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/xml"):
        refused = await client.call("POST", "/subjects/s/versions", content=SCHEMA, headers={"Content-Type": kind})
        assert (refused.status, refused.code) == (415, 415)


async def test_unknown_fields_are_passed_over(client: Client) -> None:
    """Newer clients send more; it changes nothing."""
    body = {
        "schema": '"string"',
        "propagateSchemaTags": True,
        "schemaTagsToAdd": [],
        "later": {"deep": [1]},
        "metadata": None,
    }
    assert (await client.post("/subjects/s/versions?later=1", body)).body["id"] == 1
    assert (await client.post("/subjects/s", body)).body["version"] == 1
    assert (await client.post("/compatibility/subjects/s/versions", body)).body == {"is_compatible": True}


def lines_of(caplog: pytest.LogCaptureFixture, level: int) -> list[logging.LogRecord]:
    """What a running registry would log; pytest also hears the loggers that are switched off."""
    return [
        record
        for record in caplog.records
        if record.levelno >= level and record.name.startswith(("busway", "uvicorn.error", "asyncio"))
    ]


BODIES: list[tuple[bytes, int]] = [
    (b"", 422),
    (b" ", 422),
    (b"null", 400),
    (b"[]", 400),
    (b'"text"', 400),
    (b"{", 400),
    (b"not JSON", 400),
    (b"\xff\xfe\x00", 400),
    (b'{"schema": "\xff"}', 400),
    (b'{"schema": "\\ud800"}', 400),
    (b'{"schema": NaN}', 400),
    (b"[" * 100_000, 400),
    (b'{"metadata": ' + b"9" * 5000 + b"}", 400),
    (b'{"metadata": {"properties": {"a": "\\udc00"}}}', 400),
    (b'{"metadata": {"properties": {"a": "\xff"}}}', 400),
    (b'{"schema": "\\udc00"}', 400),
    (b'{"schema": "\\ud800\\ud800"}', 400),
    (b'{"metadata": {"properties": {"a": "' + b"x" * 300_000 + b'"}}}', 413),
    (b'{"references": [' + b"[]," * 100_000 + b"[]]}", 413),
    (b'{"schema": [' + b"[]," * 1_000_000 + b"[]]}", 413),
    (b'{"schema": 1}', 400),
    (b'{"schema": {"type": "string"}}', 400),
    (b'{"schema": "\\"int\\"", "references": {}}', 400),
    (b'{"schema": "\\"int\\"", "references": [1]}', 400),
    (b'{"schema": "\\"int\\"", "references": [{"name": "n", "subject": "s"}]}', 400),
    (b'{"schema": "\\"int\\"", "references": [{"name": "n", "subject": "s", "version": true}]}', 400),
    (b'{"schema": "\\"int\\"", "references": [{"name": "n", "subject": "s", "version": 99999999999999999999}]}', 400),
    (b'{"schema": "\\"int\\"", "references": [{"name": "n", "subject": "\\u0000", "version": 1}]}', 42208),
    (b'{"schema": "\\"int\\"", "version": "1"}', 400),
    (b'{"schema": "\\"int\\"", "version": []}', 400),
    (b'{"schema": "\\"int\\"", "version": 99999999999999999999}', 400),
    (b'{"schema": "\\"int\\"", "id": {}}', 400),
    (b'{"schema": "\\"int\\"", "metadata": []}', 400),
    (b'{"schema": "\\"int\\"", "metadata": {"tags": 1}}', 400),
    (b'{"schema": "\\"int\\"", "ruleSet": {"domainRules": "x"}}', 400),
    (b'{"schema": "\\"int\\"", "schemaType": ["AVRO"]}', 42201),
    (b'{"schema": "{\\"type\\":\\"string\\",\\"x\\":\\"\\\\ud800\\"}"}', 42201),
    (b'{"schema": "' + b"[" * 100_000 + b'"}', 42201),
    (b'{"schema": "' + b"/*/" * 300_000 + b'"}', 42201),
    (b'{"schema": "\\"a\\nb\\""}', 42201),
]


@pytest.mark.slow
async def test_bodies(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Each has its code, wherever it is sent; what no working client sends leaves one line in the log, and never a traceback."""
    caplog.set_level(logging.INFO)
    for body, code in BODIES:
        for path in ("/subjects/s/versions", "/subjects/s", "/compatibility/subjects/s/versions"):
            caplog.clear()
            answer = await client.call("POST", path, content=body, headers={"Content-Type": JSON})
            assert (answer.code, answer.status) == (code, code if code < 1000 else 422), (path, body[:60])
            lines = lines_of(caplog, logging.INFO)
            assert len(lines) == (1 if code < 1000 else 0)
            assert all("\n" not in line.getMessage() and line.exc_info is None for line in lines)
    for path in ("/config", "/mode", "/config/s", "/mode/s"):
        for body in (b"", b"[]", b"{", b'{"compatibility": '):
            answer = await client.call("PUT", path, content=body, headers={"Content-Type": JSON})
            assert answer.status in {400, 422}
    assert (await client.get("/subjects")).body == []


@pytest.mark.slow
async def test_huge_bodies(client: Client) -> None:
    """Beyond the bound the answer is 413, with a length or without; the registry does not read on."""

    async def endless() -> Any:
        for _ in range(64):
            yield b"x" * 1_000_000

    for content in (b"x" * 5_000_000, endless()):
        answer = await client.call("POST", "/subjects/s/versions", content=content, headers={"Content-Type": JSON})
        assert (answer.status, answer.code) == (413, 413)
    assert (await client.get("/subjects")).body == []


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"\x00\x00\x00\x14\x00\x12\x00\x03\x00\x00\x00\x01\x00\x04test",
        b"GET / KAFKA\r\n\r\n",
        b"GET /" + b"x" * 100_000,
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /subjects/s/versions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
        b"POST /subjects/s/versions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"",
    ],
    ids=["tls", "kafka", "version", "long", "length", "bytes", "half", "chunks", "nothing"],
)
async def test_what_is_not_http(
    server: RegistryServer, client: Client, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Other protocols on the port, lying lengths, half requests: the connection ends, at most one line, others are served."""
    caplog.set_level(logging.INFO)
    where = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(sent)
    writer.write_eof()
    said = await asyncio.wait_for(reader.read(), timeout=patient(10))
    writer.close()
    await writer.wait_closed()
    assert b"Traceback" not in said
    assert said == b"" or said.startswith(b"HTTP/1.1 4")
    assert (await client.register("s", '"string"')).status == 200
    lines = lines_of(caplog, logging.WARNING)
    assert len(lines) <= 1
    assert all(line.exc_info is None for line in lines)


async def test_a_defect_of_ours(
    server: RegistryServer, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 without a word of the cause for the client; the cause in the log, once."""
    from busway_registry.service import Registry

    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(Registry, "highest_id", fail)
    await client.register("s", '"string"')
    answer = await client.get("/schemas/ids/1?fetchMaxId=true")
    assert (answer.status, answer.code) == (500, 500)
    assert "secret" not in json.dumps(answer.body)
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert lines[0].exc_info is not None
    assert (await client.get("/subjects")).body == ["s"]


@pytest.mark.slow
async def test_a_database_that_fails(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """50001, one line in the log; and service again once the database is back."""
    from sqlalchemy import create_engine, text

    from busway_registry.config import RegistryConfig

    file = tmp_path / "registry.db"
    async with RegistryServer(RegistryConfig(port=0, database=f"sqlite+aiosqlite:///{file}")) as server:
        client = Client(server.url)
        engine = create_engine(f"sqlite:///{file}")
        async with client.http:
            await client.register("s", '"string"')
            with engine.begin() as connection:
                connection.execute(text("ALTER TABLE versions RENAME TO elsewhere"))
            answer = await client.get("/subjects")
            assert (answer.status, answer.code) == (500, 50001)
            assert "elsewhere" not in answer.body["message"]
            lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
            assert len(lines) == 1
            assert "no such table: versions" in lines[0].getMessage()
            assert "\n" not in lines[0].getMessage()
            with engine.begin() as connection:
                connection.execute(text("ALTER TABLE elsewhere RENAME TO versions"))
            assert (await client.get("/subjects")).body == ["s"]
        engine.dispose()
