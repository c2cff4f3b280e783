"""Many clients at once, and a registry that is killed in the middle: every id belongs to one schema, for ever."""

import asyncio
import itertools
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from tests.integration.registry.conftest import Client

CLIENTS = 20


def schema(number: int) -> str:
    return f'{{"type":"record","name":"R{number}","fields":[]}}'


@pytest.mark.slow
async def test_the_same_schema_at_once(client: Client) -> None:
    """Twenty clients register one schema: one id, one version."""
    answers = await asyncio.gather(*(client.register("s", schema(0)) for _ in range(CLIENTS)))
    assert {(one.status, one.body["id"], one.body["version"]) for one in answers} == {(200, 1, 1)}
    assert (await client.get("/subjects/s/versions")).body == [1]
    answers = await asyncio.gather(*(client.register(f"t{number}", schema(1)) for number in range(CLIENTS)))
    assert {(one.body["id"], one.body["version"]) for one in answers} == {(2, 1)}


@pytest.mark.slow
async def test_different_schemas_at_once(client: Client) -> None:
    """Twenty clients register schemas of their own: ids and versions without gaps, each once, and what is read is what was sent."""
    await client.put("/config", {"compatibility": "NONE"})
    answers = await asyncio.gather(*(client.register("s", schema(number)) for number in range(CLIENTS)))
    assert sorted(one.body["id"] for one in answers) == list(range(1, CLIENTS + 1))
    assert sorted(one.body["version"] for one in answers) == list(range(1, CLIENTS + 1))
    for number, one in enumerate(answers):
        assert (await client.get(f"/schemas/ids/{one.body['id']}")).body["schema"] == schema(number)
        assert (await client.get(f"/subjects/s/versions/{one.body['version']}")).body["id"] == one.body["id"]


@pytest.mark.slow
async def test_registering_and_deleting_at_once(client: Client) -> None:
    """Registrations, checks and deletions of the same subjects: nothing but the answers that one after another could give."""
    await client.put("/config", {"compatibility": "NONE"})

    async def one(number: int) -> None:
        subject = f"s{number % 3}"
        for path, method, body in (
            (f"/subjects/{subject}/versions", "POST", {"schema": schema(number)}),
            (f"/compatibility/subjects/{subject}/versions/latest", "POST", {"schema": schema(number)}),
            (f"/subjects/{subject}/versions/latest", "DELETE", None),
            (f"/subjects/{subject}?permanent=true", "DELETE", None),
        ):
            assert (await client.call(method, path, body)).status in {200, 404}

    await asyncio.gather(*(one(number) for number in range(CLIENTS)))
    found = (await client.get("/schemas?deleted=true")).body
    assert len({(each["subject"], each["version"]) for each in found}) == len(found)
    assert len({each["schema"] for each in found}) == len({each["id"] for each in found})


@asynccontextmanager
async def registry_process(database: Path) -> AsyncIterator[tuple[Process, str]]:
    """A registry in a process of its own, and its address; killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "busway_registry", "0", f"sqlite+aiosqlite:///{database}", stdout=PIPE
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), timeout=30)).decode()
        assert line.startswith("serving http"), line
        yield process, line.split()[1]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.slow
async def test_killed_while_registering(tmp_path: Path) -> None:
    """SIGKILL five times in the middle of registrations: no id that was answered is lost, and none is given twice."""
    numbers = itertools.count()
    answered: dict[int, str] = {}
    enough = asyncio.Event()

    async def register(url: str, until: int) -> None:
        async with httpx2.AsyncClient(base_url=url, timeout=20, trust_env=False) as http:
            for number in numbers:
                text = schema(number)
                try:
                    answer = await http.post(f"/subjects/s{number}/versions", json={"schema": text})
                except httpx2.TransportError:
                    return
                assert answer.status_code == 200
                found = answer.json()["id"]
                assert found not in answered
                answered[found] = text
                if len(answered) >= until:
                    enough.set()

    for round_ in range(1, 6):
        async with registry_process(tmp_path / "registry.db") as (process, url), asyncio.TaskGroup() as tasks:
            enough.clear()
            for _ in range(4):
                tasks.create_task(register(url, 15 * round_))
            await asyncio.wait_for(enough.wait(), timeout=60)
            os.kill(process.pid, signal.SIGKILL)

    async with registry_process(tmp_path / "registry.db") as (process, url):
        async with httpx2.AsyncClient(base_url=url, timeout=20, trust_env=False) as http:
            for number, text in answered.items():
                assert (await http.get(f"/schemas/ids/{number}")).json()["schema"] == text
            everything = (await http.get("/schemas")).json()
            assert (
                len({one["id"] for one in everything}) == len(everything) == len({one["schema"] for one in everything})
            )
            highest = max(one["id"] for one in everything)
            new = (await http.post("/subjects/new/versions", json={"schema": '"string"'})).json()["id"]
            assert new > highest
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), timeout=20) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["x"], "invalid literal"),
        (["70000"], "port is a number from 0 to 65535"),
        (["0", "sqlite:///x"], "names an asyncio driver"),
        (["0", "sqlite+aiosqlite:////nowhere/at/all.db"], "the registry cannot use its database"),
    ],
)
async def test_a_start_that_fails(arguments: list[str], why: str) -> None:
    """One line that says why, and exit code 1."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "busway_registry", *arguments, stdout=PIPE, stderr=PIPE
    )
    out, said = await asyncio.wait_for(process.communicate(), timeout=30)
    assert (process.returncode, out) == (1, b"")
    assert why in said.decode()
    assert said.count(b"\n") == 1
