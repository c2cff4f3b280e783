"""`busway run` with processes of its own: workers that share a group, a reload, HTTP, and how it all ends."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from tests.support.patience import patient
from tests.support.programs import held_ports, spawn_async

from busway import Admin, NewTopic, Producer
from busway.consumer.snapshot import read_to_end
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow
SHOP = Path(__file__).with_name("shop.py")
SECONDS = patient(100)
SESSION_OF_STATIC_MS = 600_000
DRAIN_S = patient(40.0)
"""What a worker may take to drain whose supervisor is gone."""


@pytest.fixture
async def bootstrap() -> AsyncIterator[str]:
    """A broker in this process, with the topics."""
    async with (
        LocalCluster(properties={"group.min.session.timeout.ms": "100"}) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        await admin.create_topics([NewTopic("orders", 3), NewTopic("orders.done", 1)])
        yield cluster.bootstrap_servers


class Run:
    """`busway run …`, with both its outputs in one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def until(self, begin: str, count: int = 1) -> list[list[str]]:
        """Read until so many lines begin so; their words."""
        try:
            async with asyncio.timeout(SECONDS):
                while len(words := [line.split() for line in self.lines if line.startswith(begin)]) < count:
                    await self._line(f"ended before {begin!r}")
        except TimeoutError:
            pytest.fail(f"not {count} lines that begin with {begin!r}:\n" + "\n".join(await self._tasks()))
        return words

    async def _line(self, otherwise: str) -> None:
        assert self.process.stdout is not None
        raw = await self.process.stdout.readline()
        assert raw, f"{otherwise}: {self.lines}"
        self.lines.append(raw.decode().rstrip())

    async def _tasks(self) -> list[str]:
        """All lines, with what each worker's tasks wait for at last."""
        for pid in {int(line.split()[2]) for line in self.lines if line.startswith("has ")}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR2)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patient(2)):
                while True:
                    await self._line("ended")
        return self.lines

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code; the rest of what it says is read."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        """It ends by itself."""
        async with asyncio.timeout(SECONDS):
            out, _ = await self.process.communicate()
        self.lines += out.decode().splitlines()
        assert self.process.returncode is not None
        return self.process.returncode

    async def give_up(self) -> None:
        """End it where the test did not: by two signals, since a supervisor passes the first one on to its workers, and kills them at the
        second. Its pipe ends when the last of them has ended; workers whose supervisor was killed drain."""
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            if self.process.returncode is None:
                self.process.send_signal(signal.SIGINT)
                self.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(DRAIN_S):
                try:
                    await self.process.communicate()
                except RuntimeError:  # the test took too long, and still waits for a line
                    await self.process.wait()


class Service:
    """The service in a folder of its own, where a test may edit it and run it.

    Attributes:
        folder: where `shop.py` is.
        session_ms: of its members. Static ones outlast the start of a process only in a long one.
    """

    session_ms = 1_500

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self._bootstrap = bootstrap
        self._runs: list[Run] = []
        shutil.copy(SHOP, folder)

    async def run(self, *arguments: str, bootstrap: str | None = None) -> Run:
        """Start it, on other brokers if they are named; it ends with the test at the latest."""
        target = ("run", "shop:app", "-b", bootstrap or self._bootstrap, "--log-level", "warning", *arguments)
        process = await spawn_async(
            *(sys.executable, "-m", "busway.cli", *target),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self.folder,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "SHOP_SESSION_MS": str(self.session_ms)},
        )
        self._runs.append(Run(process))
        return self._runs[-1]

    async def end(self) -> None:
        """End all that still run."""
        for run in self._runs:
            await run.give_up()


@pytest.fixture
async def service(tmp_path: Path, bootstrap: str, programs_end: None) -> AsyncIterator[Service]:
    """The service on the broker; nothing of it outlives the test, however that ends."""
    made = Service(tmp_path, bootstrap)
    try:
        yield made
    finally:
        await made.end()


async def send(bootstrap: str, numbers: range, **more: float) -> None:
    """Orders, over all partitions."""
    async with Producer(bootstrap) as producer:
        for number in numbers:
            await producer.send("orders", json.dumps({"id": number, **more}).encode(), partition=number % 3)


async def handled(bootstrap: str) -> list[tuple[int, int]]:
    """Order and the process that handled it."""
    orders = [json.loads(record.value or b"") async for record in read_to_end(bootstrap, "orders.done")]
    return [(order["id"], order["by"]) for order in orders]


async def shared(bootstrap: str, members: int) -> None:
    """Until the group has so many members, each with a partition."""
    async with Admin(bootstrap) as admin, asyncio.timeout(SECONDS):
        while True:
            if "shop" in [group.group_id for group in await admin.list_groups()]:
                group = await admin.describe_group("shop")
                if (
                    group.state == "Stable"
                    and [len(member.partitions) for member in group.members] == [3 // members] * members
                ):
                    return
            await asyncio.sleep(0.05)


async def test_workers_share_partitions_and_drain(service: Service, bootstrap: str) -> None:
    """Three processes, a partition each; SIGTERM while each handles: all end their record, commit, and tell."""
    run = await service.run("--workers", "3")
    await shared(bootstrap, 3)
    await send(bootstrap, range(3), slow=0.5)
    begun = await run.until("begins", 3)
    assert len({words[2] for words in begun}) == 3
    assert await run.end() == 0
    assert sorted(order_id for order_id, _ in await handled(bootstrap)) == [0, 1, 2]
    assert [line for line in run.lines if "stopped" in line] == ["shop stopped: 1 records handled, 0 unfinished"] * 3
    async with Admin(bootstrap) as admin:
        assert [committed_offset.offset for committed_offset in (await admin.list_group_offsets("shop")).values()] == [
            1,
            1,
            1,
        ]
        assert (await admin.describe_group("shop")).members == ()


async def test_a_killed_worker_is_started_again_and_nothing_is_lost(service: Service, bootstrap: str) -> None:
    """SIGKILL in the middle of a handler: its record comes again, to the owner of the partition then."""
    run = await service.run("--workers", "3")
    await shared(bootstrap, 3)
    (service.folder / "hang").touch()
    await send(bootstrap, range(1))
    ((_, _, victim),) = await run.until("begins")
    (service.folder / "hang").unlink()
    os.kill(int(victim), signal.SIGKILL)
    (line,) = await run.until("busway: worker")
    assert line[3:] == ["was", "ended", "by", "SIGKILL;", "again", "in", "0.2", "s"]
    await send(bootstrap, range(1, 30))
    again = await run.until("begins 0 ", 2)
    assert again[1][2] != victim
    async with asyncio.timeout(SECONDS):
        while {order_id for order_id, _ in await handled(bootstrap)} != {*range(30)}:
            await asyncio.sleep(0.05)
    assert victim not in {str(by) for _, by in await handled(bootstrap)}
    await shared(bootstrap, 3)
    assert await run.end(signal.SIGINT) == 0
    assert len([line for line in run.lines if line.startswith("shop stopped")]) == 3


async def members(bootstrap: str) -> dict[str | None, str]:
    """The member ids of the group, by instance id."""
    async with Admin(bootstrap) as admin:
        return {member.instance_id: member.member_id for member in (await admin.describe_group("shop")).members}


async def test_workers_of_an_instance_keep_their_places(service: Service, bootstrap: str) -> None:
    """A number behind its name each; one that is killed and one that is stopped come back to what they had, and none of the rest moves."""
    service.session_ms = SESSION_OF_STATIC_MS
    run = await service.run("--workers", "3", "--instance", "host-a")
    await shared(bootstrap, 3)
    before = await members(bootstrap)
    assert set(before) == {"host-a-0", "host-a-1", "host-a-2"}
    killed = (await run.until("has 1 "))[-1][2]
    os.kill(int(killed), signal.SIGKILL)
    count = 1
    while (await run.until("has 1 ", count))[-1][2] == killed:  # lines from before the kill come first
        count += 1
    after = await members(bootstrap)
    assert {instance_id for instance_id in after if after[instance_id] != before[instance_id]} == {"host-a-1"}
    assert await run.end() == 0
    again = await service.run("--workers", "3", "--instance", "host-a")
    await again.until("has", 3)
    assert set(await members(bootstrap)) == set(before)
    async with Admin(bootstrap) as admin:
        assert "left" not in {why.what for rebalance in await admin.explain_group("shop") for why in rebalance.reasons}
    assert await again.end() == 0


async def test_the_newer_of_two_of_one_instance_stays(service: Service, bootstrap: str) -> None:
    """The other ends, with a line that says why: it is not started again and again to take the places back."""
    service.session_ms = SESSION_OF_STATIC_MS
    run = await service.run("--workers", "2", "--instance", "host-a")
    await run.until("has 1 ")
    newer = await service.run("--workers", "2", "--instance", "host-a")
    await newer.until("has 1 ")
    assert await run.ended() == 1
    assert any("another process runs with --instance host-a" in line for line in run.lines)
    assert any("ended with exit code 78; the others are ended" in line for line in run.lines)
    assert newer.process.returncode is None
    assert await newer.end() == 0


async def test_workers_end_with_their_supervisor(service: Service, bootstrap: str) -> None:
    """Killed without a word, it leaves no process behind; they drain."""
    run = await service.run("--workers", "2")
    await run.until("has", 2)
    assert await run.end(signal.SIGKILL) == -signal.SIGKILL
    # The pipe ends when the last process that writes to it has ended.
    assert [line for line in run.lines if "stopped" in line] == ["shop stopped: 0 records handled, 0 unfinished"] * 2


async def test_what_cannot_start_is_not_tried_for_ever(service: Service, bootstrap: str) -> None:
    """An address or a declaration that no restart mends ends all at once; the reason is one line."""
    run = await service.run("--workers", "2", "--http", "0.0.0.0:0")
    assert await run.ended() == 1
    assert any("ended with exit code 78; the others are ended" in line for line in run.lines)
    (service.folder / "shop.py").write_text("from busway import App\napp = App('shop')\napp.topic('a b', value=dict)\n")
    run = await service.run("--workers", "2")
    assert await run.ended() == 1
    assert "Traceback" not in "\n".join(run.lines)
    assert any(line.startswith("busway: 'a b' is no name for a topic") for line in run.lines)
    assert any("ended with exit code 78; the others are ended" in line for line in run.lines)


async def test_code_that_fails_at_start_is_named_in_one_line(service: Service, bootstrap: str) -> None:
    """A parameter that nothing fits and a lifespan that raises: file and line, no traceback."""
    source = service.folder / "shop.py"
    head = "from busway import App\n"
    tail = "t = app.topic('t', value=dict, format='json')\n@app.subscribe(t)\nasync def handle(found: dict, colour: int) -> None: ...\n"
    source.write_text(f"{head}app = App('shop')\n{tail}")
    run = await service.run()
    assert await run.ended() == 1
    assert run.lines[0].startswith(f"busway: {source}:4: handler handle: parameter colour: int cannot be filled")
    assert len(run.lines) == 1
    source.write_text(f"{head}app = App('shop')\n")
    run = await service.run(bootstrap="elsewhere:http")
    assert await run.ended() == 1
    assert run.lines[-1] == "busway: shop has failed: ValueError: bootstrap_servers: 'elsewhere:http' is not host:port"
    source.write_text(f"{head}async def life(app):\n    {{}}['prices']\n    yield\napp = App('shop', lifespan=life)\n")
    run = await service.run()
    assert await run.ended() == 1
    assert run.lines[-1] == f"busway: shop has failed: {source}:3: KeyError: 'prices'"
    assert "Traceback" not in "\n".join(run.lines)


async def test_reload_follows_edits(service: Service, bootstrap: str) -> None:
    """An edit is picked up, an error in the source is reported in one line and waited out, records in between are not lost."""
    run = await service.run("--reload")
    await run.until("has")
    await send(bootstrap, range(3))
    await run.until("begins", 3)
    source = service.folder / "shop.py"
    good = source.read_text()
    source.write_text(good.replace('"begins"', '"started"'))
    await run.until("busway: reload: shop.py changed")
    await send(bootstrap, range(3, 6))
    assert {words[1] for words in await run.until("started", 3)} == {"3", "4", "5"}
    source.write_text(good + "\nthis is no Python\n")
    (line,) = await run.until("busway: shop cannot be imported")
    assert "SyntaxError:" in line
    await run.until("busway: the service ended with exit code 1; waiting for a change")
    source.write_text(good.replace('"begins"', '"mended"'))
    await send(bootstrap, range(6, 9))
    await run.until("mended", 3)
    assert await run.end() == 0
    assert sorted(order_id for order_id, _ in await handled(bootstrap)) == list(range(9))
    assert "Traceback" not in "\n".join(run.lines)


async def test_http_of_workers(service: Service, bootstrap: str) -> None:
    """Worker i on PORT + i, each with its own partitions; a taken port is reported in one line."""
    port, _ = held_ports(2)
    run = await service.run("--workers", "2", "--http", str(port))
    urls = {words[1] for words in await run.until("shop http://", 2)}
    assert urls == {f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"}
    async with httpx2.AsyncClient() as client, asyncio.timeout(SECONDS):
        for url in urls:
            while (answer := await client.get(f"{url}/health/ready")).status_code != 200:
                assert answer.json()["reasons"] == ["group shop has assigned nothing yet"]
                await asyncio.sleep(0.05)
            assert "busway_assigned_partitions" in (await client.get(f"{url}/metrics")).text
            assert (await client.get(f"{url}/nowhere")).json() == {"error": "Not Found"}
    other = await service.run("--http", str(port))
    assert await other.ended() == 1
    assert other.lines == [
        f"busway: the service cannot listen on 127.0.0.1:{port}: Address already in use; stop what holds the port, or choose another"
    ]
    assert await run.end() == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--workers", "2", "--reload"), "--reload is for development and runs one process; leave --workers out"),
        (("--workers", "0"), "--workers 0: give a number from 1 to 256"),
        (("--instance", "a b"), "--instance a b: give 1 to 240 letters, digits, dots, hyphens and underscores"),
        (("--http", "0.0.0.0:0"), "host 0.0.0.0 is reachable by others and there is no authentication"),
        (("--http", "here"), "'here' is no address to serve HTTP on: give [HOST:]PORT"),
    ],
)
async def test_options_that_make_no_sense(service: Service, arguments: tuple[str, ...], text: str) -> None:
    """One line, exit code 1."""
    run = await service.run(*arguments)
    assert await run.ended() == 1
    assert run.lines[0].startswith(f"busway: {text}")
    assert len(run.lines) == 1
