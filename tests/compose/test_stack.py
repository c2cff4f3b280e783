"""All services in their containers, driven from outside, and what is true after one of them died."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import pytest
from tests.compose.scenarios import Scenario, scenarios
from tests.compose.scenarios.movieflix import STEPS, VIEWERS, MovieFlix
from tests.compose.stack import Stack
from tests.support.patience import patient

from busway import Admin, NewTopic, Producer

pytestmark = [pytest.mark.compose, pytest.mark.slow, pytest.mark.timeout(1200)]
OURS = "busway-"


@asynccontextmanager
async def clients(stack: Stack, parts: list[Scenario]) -> AsyncIterator[dict[str, httpx2.AsyncClient]]:
    """An HTTP client of each service; patient, as a request waits for the bus as long as the service does."""
    async with AsyncExitStack() as opened:
        yield {
            part.service: await opened.enter_async_context(
                httpx2.AsyncClient(base_url=stack.url(part.service.upper()), timeout=patient(60), trust_env=False)
            )
            for part in parts
        }


def test_what_is_ours_has_no_rights(stack: Stack) -> None:
    """No container of ours runs as root."""
    ours = {name: container for name, container in stack.containers().items() if container.image.startswith(OURS)}
    services = {"movieflix", "mysocialmedia", "gettaxi", "mybank", "bank"}
    assert ours.keys() >= {"bus", "registry", "connect", "spark-master", "spark-worker"} | services
    assert {container.user for name, container in ours.items() if name != "postgres"} == {"10001:10001"}


async def test_a_client_here_and_one_among_the_containers(stack: Stack) -> None:
    """Each gets an address that it can reach: what is written from this machine is read in the network, and the other way round."""
    here = f"127.0.0.1:{stack.ports['BUS']}"
    async with Admin(here) as admin:
        assert list((await admin.describe_cluster()).brokers.values()) == [("127.0.0.1", stack.ports["BUS"])]
        await admin.create_topics([NewTopic("doors", 1)])
    async with Producer(here) as producer:
        await producer.send_and_wait("doors", b"from here")
    there = ("exec", "-T", "movieflix", "busway", "consume", "doors", "--from-beginning", "-n", "1", "-b", "bus:9092")
    assert await asyncio.to_thread(stack.compose, *there) == "from here\n"
    await asyncio.to_thread(
        stack.compose, "exec", "-T", "movieflix", "busway", "topics", "create", "there", "-b", "bus:9092"
    )
    async with Admin(here) as admin:
        assert "there" in await admin.list_topics()


async def test_the_bus_is_killed(stack: Stack) -> None:
    """SIGKILL while all services are busy, and a new start: every request is answered, everything is there once."""
    parts = scenarios(stack)
    async with clients(stack, parts) as http:
        await asyncio.gather(*(part.prepare(http[part.service]) for part in parts))
        async with asyncio.TaskGroup() as tasks:
            for part in parts:
                tasks.create_task(part.load(http[part.service]))
            for part in parts:
                await part.half_way.wait()
            await asyncio.to_thread(stack.kill, "bus")
            await asyncio.to_thread(stack.up, "bus")
        for part in parts:
            await part.exact(http[part.service])


async def test_a_stop_and_a_start(stack: Stack) -> None:
    """Everything ends in order when it is asked to, and what was there is there again."""
    parts = scenarios(stack)
    async with clients(stack, parts) as http:
        await asyncio.gather(*(part.prepare(http[part.service]) for part in parts))
        await asyncio.gather(*(part.load(http[part.service]) for part in parts))
        for part in parts:
            await part.exact(http[part.service])
        await asyncio.to_thread(stack.compose, "stop")
        ended = stack.containers()
        ours = {
            name
            for name, container in ended.items()
            if container.image.startswith(OURS) and not name.startswith("spark")
        }
        assert {name: ended[name].exit_code for name in ours} == dict.fromkeys(ours, 0)
        await asyncio.to_thread(stack.up)
    async with clients(stack, parts) as http:
        for part in parts:
            await part.exact(http[part.service])


async def test_the_database_is_away(stack: Stack) -> None:
    """The registry says so, and serves again without being started again."""
    async with httpx2.AsyncClient(base_url=stack.url("REGISTRY"), timeout=patient(20), trust_env=False) as http:
        schema = {"schema": '"string"'}
        before = (await http.post("/subjects/away/versions", json=schema)).json()["id"]
        await asyncio.to_thread(stack.compose, "stop", "postgres")
        away = await http.get("/subjects")
        assert (away.status_code, away.json()["error_code"]) == (500, 50001)
        await asyncio.to_thread(stack.up, "postgres")
        assert (await http.post("/subjects/away/versions", json=schema)).json()["id"] == before


async def test_connect_serves(stack: Stack) -> None:
    """It knows its connectors, and reaches the bus, where it keeps those that are made."""
    sink = {"connector.class": "JdbcSink", "connection.url": "sqlite:////tmp/lines.db", "topics": "lines"}
    async with httpx2.AsyncClient(base_url=stack.url("CONNECT"), timeout=patient(60), trust_env=False) as http:
        made = await http.post("/connectors", json={"name": "lines", "config": sink})
        assert made.status_code == 201, made.text
        assert "lines" in (await http.get("/connectors")).json()
        assert (await http.delete("/connectors/lines")).status_code == 204


async def test_a_spark_job_on_the_cluster(stack: Stack) -> None:
    """Every record of a topic becomes a row of the store, written by the worker, once."""
    viewers = MovieFlix()
    async with clients(stack, [viewers]) as http:
        await viewers.load(http[viewers.service])
    topic, least = "movieflix.watched", VIEWERS * STEPS
    job = ("offload", "--master", "spark://spark-master:7077", "--topic", topic, "--out", "/store", "--until-end")
    await asyncio.to_thread(stack.compose, "run", "--rm", "-T", "spark", *job, timeout_s=300)
    count = (
        "import pyarrow.dataset as d; "
        f"rows = d.dataset('/store/{topic}', format='parquet').to_table(['_partition', '_offset']).to_pylist(); "
        "print(len(rows), len({tuple(row.values()) for row in rows}))"
    )
    said = await asyncio.to_thread(stack.compose, "run", "--rm", "-T", "--entrypoint", "python", "spark", "-c", count)
    rows, different = map(int, said.split()[-2:])
    assert rows == different >= least
