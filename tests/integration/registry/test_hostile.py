"""What tries to stall or exhaust a registry, with a canary beside it: schemas, bodies, lists and connections of the dearest kinds.

The registry is a process of its own. No answer of the canary waits for more than 100 ms of the event loop's CPU behind one request, and
the process never holds more than 512 MiB; those that judge large schemas have a bound of their own.
"""

import contextlib
import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.canary import Canary, HttpQuestion
from tests.support.patience import patient
from tests.support.programs import end, spawn

pytestmark = [pytest.mark.hostile, pytest.mark.slow, pytest.mark.timeout(300)]


_PATIENT = """
import sys
from busway_registry.__main__ import main
from busway_registry.validation.validator import SchemaValidator
SchemaValidator.__init__.__defaults__ = (240.0,)
sys.exit(main(sys.argv[1:]))
"""
"""What one request may take is the work that it makes here: its deadline on the wall passes on a busy machine."""


class Registry:
    """A registry in a process of its own, on a database file."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", _PATIENT, "0", f"sqlite:///{folder / 'registry.db'}"]
        self.process = spawn(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        address = self.process.stdout.readline().split()[1].removeprefix("http://")
        self.host, self.port = address.split(":")[0], int(address.split(":")[1])

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=patient(280))
        data = body if isinstance(body, bytes) else (None if body is None else json.dumps(body).encode())
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text)

    def register(self, subject: str, schema: Any, **more: Any) -> tuple[int, Any]:
        """Register a schema."""
        text = json.dumps(schema, separators=(",", ":"))
        return self.call("POST", f"/subjects/{subject}/versions", {"schema": text, **more})

    def check(self, subject: str, schema: Any, query: str = "") -> tuple[int, Any]:
        """Compare a schema."""
        return self.call("POST", f"/compatibility/subjects/{subject}/versions{query}", {"schema": json.dumps(schema)})


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """One registry, which must end well."""
    running = Registry(tmp_path)
    assert running.register("canary", "string")[0] == 200
    yield running
    end(running.process)
    assert running.process.stdout is not None
    running.process.stdout.close()
    assert running.process.returncode == 0


@pytest.fixture
def canary(registry: Registry) -> Iterator[Canary]:
    """Sings while the test is hostile; it must not have waited."""
    asking = HttpQuestion(registry.host, registry.port, "/schemas/ids/1")
    singing = Canary(registry.process.pid, asking)
    with singing:
        yield singing
    singing.check()


def record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": name, "type": kind} for name, kind in fields]}


def laughs(levels: int, last: str) -> Any:
    made = record("N0", ("v", last))
    for number in range(1, levels):
        made = record(f"N{number}", ("l", made), ("r", f"N{number - 1}"))
    return made


def union(count: int, last: str = "int") -> list[Any]:
    twice = [record(f"N{n}", ("l", f"N{n - 1}"), ("r", f"N{n - 1}")) for n in range(1, count)]
    return [record("N0", ("v", last)), *twice]


def wide(count: int, name: str = "R", more: int = 0) -> dict[str, Any]:
    made = record(name, *((f"f{number}", "string") for number in range(count)))
    made["fields"] += [{"name": f"m{number}", "type": "int", "default": 0} for number in range(more)]
    return made


def test_types_that_refer_twice(registry: Registry, canary: Canary) -> None:
    """A breach for each of two to the power of 24, or of 60, ways: two hundred are reported."""
    for levels in (24, 32, 60):
        assert registry.register(f"s{levels}", laughs(levels, "int"))[0] == 200
        status, answer = registry.register(f"s{levels}", laughs(levels, "string"))
        assert (status, answer["message"].count("TYPE_MISMATCH")) == (409, 200)


@pytest.mark.parametrize("count", [200, 300, 440, 600])
def test_unions_of_records(registry: Registry, canary: Canary, count: int) -> None:
    """Each against itself and against another: a verdict, or that it is too much."""
    assert registry.register("s", union(count))[0] == 200
    for last in ("int", "string"):
        status, answer = registry.check("s", union(count, last))
        assert answer.get("is_compatible") == (last == "int") or (status, answer["error_code"]) == (422, 42201)


def test_many_wide_versions(registry: Registry, canary: Canary) -> None:
    """A record of two thousand fields against thirty versions, both ways."""
    assert registry.call("PUT", "/config/s", {"compatibility": "FULL_TRANSITIVE"})[0] == 200
    for number in range(30):
        assert (
            registry.call("POST", "/subjects/s/versions?force=true", {"schema": json.dumps(wide(2000, more=number))})[0]
            == 200
        )
    assert registry.register("s", wide(2000, more=31))[0] == 200


def test_large_schemas(registry: Registry, canary: Canary) -> None:
    """A megabyte of fields, of symbols, of aliases, of branches; ten in parallel; and lists that hold them all."""
    large = wide(29_000)
    assert 900_000 < len(json.dumps(large, separators=(",", ":"))) < 1_000_000
    with ThreadPoolExecutor(10) as threads:
        made = list(threads.map(lambda number: registry.register(f"s{number}", large)[0], range(10)))
        assert made == [200] * 10
        assert set(
            threads.map(lambda number: registry.register(f"s{number}", wide(28_900, more=20))[0], range(10))
        ) == {200}
    enum = {"type": "enum", "name": "E", "symbols": [f"s{number}" for number in range(100_000)]}
    aliases = {"type": "fixed", "name": "F", "size": 1, "aliases": [f"a{number}" for number in range(50_000)]}
    branches = [{"type": "fixed", "name": f"b{number}", "size": 1} for number in range(18_000)]
    for subject, schema in (("enum", enum), ("aliases", aliases), ("branches", branches)):
        assert registry.register(subject, schema)[0] == 200
    assert len(registry.call("GET", "/schemas")[1]) == 24


def test_bodies(registry: Registry, canary: Canary) -> None:
    """Four megabytes of arrays beside a schema, as metadata, as rules, as references."""
    arrays = b"[" + b"[]," * 1_300_000 + b"[]]"
    for field, expected in ((b"other", 200), (b"metadata", 413), (b"ruleSet", 413), (b"references", 413)):
        body = b'{"schema":"\\"string\\"","' + field + b'":' + arrays + b"}"
        assert registry.call("POST", "/subjects/s/versions", body)[0] == expected
    for count, expected in ((12_000, 422), (1_000, 200)):
        names = ",".join(f'{{"name":"r{number}"}}' for number in range(count))
        body = f'{{"schema":"\\"string\\"","ruleSet":{{"domainRules":[{names}]}}}}'.encode()
        assert registry.call("POST", "/subjects/s/versions", body)[0] == expected


def test_half_sent_requests(registry: Registry, canary: Canary) -> None:
    """Three hundred that end in the middle, forty of them with four megabytes: too many large ones are refused, the small are served."""
    head = b"POST /subjects/s/versions HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n"
    open_ = [socket.create_connection((registry.host, registry.port), timeout=patient(60)) for _ in range(300)]
    try:
        for number, connection in enumerate(open_):
            connection.sendall(head if number % 2 else head[:40])
        for connection in open_[1:80:2]:
            with contextlib.suppress(OSError):  # refused, and closed
                connection.sendall(b"x" * 3_900_000)
            for _ in range(8):  # one after another, as the measure is of one
                registry.call("GET", "/schemas/ids/1")
        assert registry.register("small", "int")[0] == 200
    finally:
        for connection in open_:
            connection.close()
    assert registry.register("again", "long")[0] == 200


def test_lists(registry: Registry, tmp_path: Path) -> None:
    """Of fifty thousand subjects with one schema: a part of a list costs what the part costs, and the whole stalls no other client."""
    import sqlite3

    with sqlite3.connect(tmp_path / "registry.db") as database:
        rows = [(f"subject-{number:05}", 1, 1, False, 0) for number in range(50_000)]
        database.executemany(
            "INSERT INTO versions (subject, version, schema_id, deleted, timestamp_ms) VALUES (?, ?, ?, ?, ?)", rows
        )
    database.close()
    paths = (
        "/subjects",
        "/subjects?subjectPrefix=subject-4",
        "/schemas?subjectPrefix=s",
        "/schemas/ids/1/subjects",
        "/schemas/ids/1/versions",
    )
    asking = HttpQuestion(registry.host, registry.port, "/subjects?limit=1")
    with Canary(registry.process.pid, asking) as canary:
        for path in paths:
            many = registry.call("GET", path)[1]
            more = path + ("&" if "?" in path else "?") + "limit=3"
            assert registry.call("GET", more)[1] == many[:3]
        assert len(registry.call("GET", "/subjects?subjectPrefix=subject")[1]) == 50_000
    canary.check()
