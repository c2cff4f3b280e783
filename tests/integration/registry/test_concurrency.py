"""Many clients at once, and a registry that is killed in the middle: every id belongs to one schema, for ever."""

import asyncio
import itertools
import os
import signal
import sys
from asyncio.subprocess import PIPE
from contextlib import AsyncExitStack

import httpx2
import pytest
from tests.integration.registry.conftest import POSTGRES, Client, registry_process
from tests.support.patience import patient
from tests.support.postgres import Postgres
from tests.support.programs import spawn_async

CLIENTS = 20


def schema(number: int) -> str:
    return f'{{"type":"record","name":"R{number}","fields":[]}}'


@pytest.mark.slow
async def test_the_same_schema_at_once(client: Client) -> None:
    """Twenty clients register one schema: one id, one version."""
    answers = await asyncio.gather(*(client.register("s", schema(0)) for _ in range(CLIENTS)))
    assert {(answer.status, answer.body["id"], answer.body["version"]) for answer in answers} == {(200, 1, 1)}
    assert (await client.get("/subjects/s/versions")).body == [1]
    answers = await asyncio.gather(*(client.register(f"t{number}", schema(1)) for number in range(CLIENTS)))
    assert {(answer.body["id"], answer.body["version"]) for answer in answers} == {(2, 1)}


@pytest.mark.slow
async def test_different_schemas_at_once(client: Client) -> None:
    """Twenty clients register schemas of their own: ids and versions without gaps, each once, and what is read is what was sent."""
    await client.put("/config", {"compatibility": "NONE"})
    answers = await asyncio.gather(*(client.register("s", schema(number)) for number in range(CLIENTS)))
    assert sorted(answer.body["id"] for answer in answers) == list(range(1, CLIENTS + 1))
    assert sorted(answer.body["version"] for answer in answers) == list(range(1, CLIENTS + 1))
    for number, answer in enumerate(answers):
        assert (await client.get(f"/schemas/ids/{answer.body['id']}")).body["schema"] == schema(number)
        assert (await client.get(f"/subjects/s/versions/{answer.body['version']}")).body["id"] == answer.body["id"]


@pytest.mark.slow
async def test_registering_and_deleting_at_once(client: Client) -> None:
    """Registrations, checks and deletions of the same subjects: nothing but the answers that one after another could give."""
    await client.put("/config", {"compatibility": "NONE"})

    async def register_and_delete(number: int) -> None:
        subject = f"s{number % 3}"
        for path, method, body in (
            (f"/subjects/{subject}/versions", "POST", {"schema": schema(number)}),
            (f"/compatibility/subjects/{subject}/versions/latest", "POST", {"schema": schema(number)}),
            (f"/subjects/{subject}/versions/latest", "DELETE", None),
            (f"/subjects/{subject}?permanent=true", "DELETE", None),
        ):
            assert (await client.call(method, path, body)).status in {200, 404}

    await asyncio.gather(*(register_and_delete(number) for number in range(CLIENTS)))
    schemas = (await client.get("/schemas?deleted=true")).body
    assert len({(each["subject"], each["version"]) for each in schemas}) == len(schemas)
    assert len({each["schema"] for each in schemas}) == len({each["id"] for each in schemas})


@pytest.mark.hostile
@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", POSTGRES], indirect=True)
async def test_killed_while_registering(database: str) -> None:
    """SIGKILL five times in the middle of registrations: no id that was answered is lost, and none is given twice."""
    numbers = itertools.count()
    answered: dict[int, str] = {}
    enough = asyncio.Event()

    async def register(url: str, until: int) -> None:
        async with httpx2.AsyncClient(base_url=url, timeout=patient(20), trust_env=False) as http:
            for number in numbers:
                text = schema(number)
                try:
                    answer = await http.post(f"/subjects/s{number}/versions", json={"schema": text})
                except httpx2.TransportError:
                    return
                assert answer.status_code == 200
                schema_id = answer.json()["id"]
                assert schema_id not in answered
                answered[schema_id] = text
                if len(answered) >= until:
                    enough.set()

    for round_ in range(1, 6):
        async with registry_process(database) as (process, url), asyncio.TaskGroup() as tasks:
            enough.clear()
            for _ in range(4):
                tasks.create_task(register(url, 15 * round_))
            await asyncio.wait_for(enough.wait(), timeout=patient(60))
            os.kill(process.pid, signal.SIGKILL)

    async with registry_process(database) as (process, url):
        async with httpx2.AsyncClient(base_url=url, timeout=patient(20), trust_env=False) as http:
            for number, text in answered.items():
                assert (await http.get(f"/schemas/ids/{number}")).json()["schema"] == text
            everything = (await http.get("/schemas")).json()
            assert (
                len({entry["id"] for entry in everything})
                == len(everything)
                == len({entry["schema"] for entry in everything})
            )
            highest = max(entry["id"] for entry in everything)
            new = (await http.post("/subjects/new/versions", json={"schema": '"string"'})).json()["id"]
            assert new > highest
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), timeout=patient(20)) == 0


@pytest.mark.slow
@pytest.mark.postgres
async def test_two_nodes_on_one_database(postgres: Postgres) -> None:
    """Started at once on an empty database: equal schemas through both get one id, different ones no id twice; one dies, one goes on."""
    async with AsyncExitStack() as stack:
        nodes = [registry_process(postgres.dsn) for _ in range(2)]
        (dying, first), (_, second) = await asyncio.gather(*map(stack.enter_async_context, nodes))
        clients = [Client(first), Client(second)]
        for client in clients:
            await stack.enter_async_context(client.http)
        await clients[0].put("/config", {"compatibility": "NONE"})

        equal = [client.register(f"s{n}", schema(n)) for n in range(CLIENTS) for client in (*clients, *clients)]
        ids = {
            (answer.body["schema"], answer.body["id"], answer.body["version"])
            for answer in await asyncio.gather(*equal)
        }
        assert sorted(each for _, each, _ in ids) == list(range(1, CLIENTS + 1))
        assert {version for _, _, version in ids} == {1}

        different = [clients[n % 2].register("s", schema(CLIENTS + n)) for n in range(CLIENTS)]
        answers = await asyncio.gather(*different)
        assert sorted(answer.body["id"] for answer in answers) == list(range(CLIENTS + 1, 2 * CLIENTS + 1))
        assert sorted(answer.body["version"] for answer in answers) == list(range(1, CLIENTS + 1))

        more = [asyncio.ensure_future(clients[n % 2].register("t", schema(2 * CLIENTS + n))) for n in range(CLIENTS)]
        await asyncio.wait(more, return_when=asyncio.FIRST_COMPLETED)
        os.kill(dying.pid, signal.SIGKILL)
        ended = await asyncio.gather(*more, return_exceptions=True)
        served = [result for result in ended if not isinstance(result, BaseException)]
        assert all(answer.status == 200 for answer in served)
        assert all(isinstance(result, httpx2.TransportError) for result in ended if result not in served)
        assert all(result in served for result in ended[1::2]), "the node that lives served everybody"
        schemas = (await clients[1].get("/schemas")).body
        kept = {entry["schema"]: entry["id"] for entry in schemas}
        assert len(set(kept.values())) == len(kept) == len({entry["id"] for entry in schemas})
        assert all(kept[answer.body["schema"]] == answer.body["id"] for answer in served)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["x"], "invalid literal"),
        (["70000"], "port is a number from 0 to 65535"),
        (["0", "mysql://host/x"], "give sqlite:///FILE"),
        (["0", "sqlite:////nowhere/at/all.db"], "the registry cannot use its database"),
    ],
)
async def test_a_start_that_fails(arguments: list[str], why: str) -> None:
    """One line that says why, and exit code 1."""
    process = await spawn_async(sys.executable, "-m", "busway_registry", *arguments, stdout=PIPE, stderr=PIPE)
    out, said = await asyncio.wait_for(process.communicate(), timeout=patient(30))
    assert (process.returncode, out) == (1, b"")
    assert why in said.decode()
    assert said.count(b"\n") == 1
