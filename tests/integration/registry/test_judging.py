"""Large schemas are judged in processes of their own: bounded, replaced, gone with the registry, and no other request waits for them."""

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.registry.conftest import Client

from busway_registry.config import RegistryConfig
from busway_registry.domain.compatibility.breaches import MOST_STEPS
from busway_registry.domain.compatibility.check import Earlier
from busway_registry.domain.compatibility.levels import Level
from busway_registry.domain.errors import RegistryError
from busway_registry.domain.schemas import Artifact, SchemaRequest
from busway_registry.server import RegistryServer
from busway_registry.validation.pool import WORKERS, Pool
from busway_registry.validation.validator import HERE_CHARS, HERE_STEPS, SchemaValidator

SMALL = '{"type":"record","name":"R","fields":[]}'


def wide(fields: int = 400, kind: str = "int", **more: Any) -> str:
    made = [{"name": f"f{number}", "type": kind} for number in range(fields)]
    return json.dumps({"type": "record", "name": "R", "fields": made, **more}, separators=(",", ":"))


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    """A pool without a process yet."""
    made = Pool()
    yield made
    await made.close()


@pytest.mark.slow
async def test_large_and_small_alike(client: Client, server: RegistryServer) -> None:
    """The same answers whether a schema is judged here or in a process, which starts when the first large one comes and stays."""
    await client.register("s", SMALL)
    await client.register("s", '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":0}]}')
    assert server.judging == []
    assert len(wide()) > HERE_CHARS
    made = await client.register("t", wide().replace(",", ", "))
    assert made.body["schema"] == wide()
    (pid,) = server.judging
    assert (await client.register("t", wide())).body["version"] == 1
    assert (await client.post("/subjects/t", {"schema": wide()})).body["version"] == 1
    assert (await client.register("t", wide(399))).body["version"] == 2
    refused = await client.register("t", wide(kind="string"))
    assert refused.code == 409
    assert "TYPE_MISMATCH" in refused.body["message"]
    checked = await client.post("/compatibility/subjects/t/versions?verbose=true", {"schema": wide(kind="string")})
    assert checked.body["is_compatible"] is False
    assert (await client.register("t", wide(kind="nothing"))).code == 42201
    assert server.judging == [pid]


@pytest.mark.slow
async def test_processes_end_with_the_registry() -> None:
    """Also the one that is busy."""
    async with RegistryServer(RegistryConfig(port=0, database="memory:")) as server:
        client = Client(server.url)
        async with client.http:
            await asyncio.gather(*(client.register(f"s{number}", wide()) for number in range(2 * WORKERS)))
            pids = server.judging
            assert len(pids) == WORKERS
    assert not any(map(runs, pids))


@pytest.mark.slow
async def test_nobody_waits_for_a_large_one(client: Client, server: RegistryServer) -> None:
    """While a process stands still, everybody else reads and writes, that subject too; and what was judged of it is judged again."""
    await client.put("/config", {"compatibility": "BACKWARD_TRANSITIVE"})
    await asyncio.gather(*(client.register(name, wide()) for name in ("s", "u")))
    pids = server.judging
    assert len(pids) == WORKERS
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        under_way = [asyncio.ensure_future(client.register("s", wide(fields))) for fields in (399, 398, 397)]
        assert (await client.register("t", SMALL)).body["version"] == 1
        assert (await client.post("/subjects/s/versions?force=true", {"schema": SMALL})).body["version"] == 2
        assert (await client.get("/subjects/s/versions/latest")).body["schema"] == SMALL
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    answers = await asyncio.gather(*under_way)
    # Against the version that came meanwhile, every field is new and has no default.
    assert {error.code for error in answers} == {409}
    assert all("{oldSchemaVersion:2}" in error.body["message"] for error in answers)


@pytest.mark.slow
async def test_too_slow(pool: Pool) -> None:
    """50002 for whom it befalls, with the wait for a process; the process is killed, and the next request has another."""
    request = SchemaRequest(text=wide())
    await SchemaValidator(pool).request().build(request, [], normalize=False)
    (pid,) = pool.pids
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(RegistryError, match="takes too long") as late:
        await SchemaValidator(pool, deadline_s=0.01).request().build(request, [], normalize=False)
    assert late.value.code == 50002
    assert not runs(pid)
    artifact = await SchemaValidator(pool).request().build(request, [], normalize=False)
    assert artifact.text == wide()
    assert pool.pids != [pid]


@pytest.mark.slow
async def test_a_request_that_goes_away(pool: Pool) -> None:
    """A cancelled request takes its process along."""
    judge = SchemaValidator(pool)
    await judge.request().build(SchemaRequest(text=wide()), [], normalize=False)
    (pid,) = pool.pids
    os.kill(pid, signal.SIGSTOP)
    asking = asyncio.ensure_future(judge.request().build(SchemaRequest(text=wide()), [], normalize=False))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not runs(pid)
    await judge.request().build(SchemaRequest(text=wide()), [], normalize=False)


@pytest.mark.slow
async def test_a_process_that_dies(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """50002 and a line in the log; the next request has another."""
    judge = SchemaValidator(pool)
    await judge.request().build(SchemaRequest(text=wide()), [], normalize=False)
    (pid,) = pool.pids
    os.kill(pid, signal.SIGSTOP)
    asking = asyncio.ensure_future(judge.request().build(SchemaRequest(text=wide()), [], normalize=False))
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RegistryError, match="could not be judged") as failed:
        await asking
    assert failed.value.code == 50002
    assert "a process that judged a schema ended with -9" in caplog.text
    await judge.request().build(SchemaRequest(text=wide()), [], normalize=False)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the bound of another process is set by prlimit")
async def test_too_much_memory(pool: Pool) -> None:
    """42201; the process ends, and the next request has another."""
    judge = SchemaValidator(pool)
    await judge.request().build(SchemaRequest(text=wide()), [], normalize=False)
    (pid,) = pool.pids
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    resource.prlimit(pid, resource.RLIMIT_AS, (pages * resource.getpagesize() + 4 * 2**20,) * 2)
    with pytest.raises(RegistryError, match="of memory; make it smaller") as refused:
        await judge.request().build(SchemaRequest(text=wide(20_000)), [], normalize=False)
    assert refused.value.code == 42201
    assert not runs(pid)
    await judge.request().build(SchemaRequest(text=wide(20_000)), [], normalize=False)


@pytest.mark.slow
async def test_too_many_wait(pool: Pool) -> None:
    """503 at once; those who wait are served."""
    judge = SchemaValidator(pool)
    asked = [judge.request().build(SchemaRequest(text=wide()), [], normalize=False) for _ in range(80)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, RegistryError)]
    assert {error.code for error in refused} == {503}
    assert len(refused) == 80 - 64
    assert sum(isinstance(answer, Artifact) for answer in answers) == 64


@pytest.mark.slow
async def test_one_budget_for_a_request(pool: Pool) -> None:
    """However often it asks; and what is too much for the event loop goes to a process."""

    def union(letter: str) -> Artifact:
        types = [{"type": "fixed", "name": f"{letter}{number}", "size": 1} for number in range(40)]
        text = json.dumps(types)
        return Artifact(text=text, schema_type="AVRO", references=(), metadata=None, rule_set=None)

    assert HERE_STEPS < 40 * 40
    assert len(union("A").text) < HERE_CHARS / 2
    earlier = [Earlier(version=1, artifact=union("B"))]
    judging = SchemaValidator(pool).request()
    messages = await judging.explain(union("A"), [], earlier, Level.BACKWARD)
    assert len(messages) == 40 + 3
    assert len(pool.pids) == 1
    judging._steps = 1_000  # what many earlier versions would have left
    with pytest.raises(RegistryError, match=f"more than {MOST_STEPS} pairs") as refused:
        await judging.explain(union("A"), [], earlier, Level.BACKWARD)
    assert refused.value.code == 42201
