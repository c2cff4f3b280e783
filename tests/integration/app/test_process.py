"""Services as processes of their own: killed in the middle, ended by a signal, two of one group."""

import asyncio
import collections
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import patient
from tests.support.programs import spawn_async

from busway import Admin, Producer
from busway.consumer.snapshot import read_to_end
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("programs_end")]
HERE = Path(__file__).parent
SECONDS = patient(30)


@pytest.fixture
async def bootstrap() -> AsyncIterator[str]:
    """A broker in this process."""
    async with LocalCluster(properties={"group.min.session.timeout.ms": "100"}) as cluster:
        yield cluster.bootstrap_servers


class Service:
    """`busway run counting:app`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    @classmethod
    async def start(cls, bootstrap: str, *arguments: str, level: str = "warning") -> "Service":
        process = await spawn_async(
            sys.executable,
            *("-m", "busway.cli", "run", "counting:app", "-b", bootstrap, "--log-level", level, *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=HERE,
            env={**os.environ},
        )
        return cls(process)

    async def logged(self, text: str) -> str:
        """Read its log up to a line with this text; that line."""
        assert self.process.stderr is not None
        async with asyncio.timeout(SECONDS):
            while raw := await self.process.stderr.readline():
                if text in (line := raw.decode()):
                    return line
        raise AssertionError(f"ended before {text!r}")

    async def until(self, line: str) -> None:
        """Read what it prints up to a line."""
        assert self.process.stdout is not None
        async with asyncio.timeout(SECONDS):
            while line not in self.lines:
                raw = await self.process.stdout.readline()
                if not raw:
                    _, err = await self.process.communicate()
                    raise AssertionError(f"ended before {line!r}: {self.lines} {err.decode()}")
                self.lines.append(raw.decode().strip())

    async def end(self, number: signal.Signals) -> tuple[int, str]:
        """Its exit code, and what it wrote to standard error."""
        self.process.send_signal(number)
        async with asyncio.timeout(SECONDS):
            out, err = await self.process.communicate()
        self.lines += out.decode().splitlines()
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()


async def send(bootstrap: str, rides: list[dict[str, Any]], partition: int | None = 0) -> None:
    """Rides for the service."""
    async with Admin(bootstrap) as admin:
        if "rides" not in await admin.list_topics():
            from busway import NewTopic

            await admin.create_topics([NewTopic("rides", 2)])
    async with Producer(bootstrap) as producer:
        for ride in rides:
            number = ride["id"] % 2 if partition is None else partition
            await producer.send("rides", json.dumps(ride).encode(), b"%d" % ride["id"], partition=number)


async def handled(bootstrap: str) -> list[int]:
    """The rides that handlers wrote out."""
    return [json.loads(record.value or b"")["id"] async for record in read_to_end(bootstrap, "done")]


async def committed(bootstrap: str) -> dict[int, int]:
    async with Admin(bootstrap) as admin:
        offsets = await admin.list_group_offsets("counting")
    return {partition.partition: offset.offset for partition, offset in offsets.items()}


async def test_a_kill_in_the_middle_of_a_handler_repeats_its_record(bootstrap: str) -> None:
    """SIGKILL: nothing is drained; what was not handled is handled by the next process, nothing is skipped."""
    await send(bootstrap, [{"id": number, "slow": 60 if number == 3 else 0} for number in range(6)])
    first = await Service.start(bootstrap)
    await first.until("begins 3")
    await first.end(signal.SIGKILL)
    assert (await committed(bootstrap)).get(0, 0) <= 3
    assert await handled(bootstrap) == [0, 1, 2]
    second = await Service.start(bootstrap)
    await second.until("begins 3")
    again = [line for line in second.lines if line.startswith("begins")]
    assert again[-1] == "begins 3"
    assert len(again) <= 4
    await second.end(signal.SIGKILL)


async def test_a_signal_drains(bootstrap: str) -> None:
    """SIGTERM while a handler waits: it ends, its offset is committed, the process ends with 0."""
    await send(bootstrap, [{"id": 0, "slow": "0.3"}, {"id": 1}])
    service = await Service.start(bootstrap)
    await service.until("begins 0")
    code, err = await service.end(signal.SIGTERM)
    assert (code, err) == (0, "")
    assert "handled 0" in service.lines
    moved = {number: offset for number, offset in (await committed(bootstrap)).items() if offset}
    assert moved == {0: len(await handled(bootstrap))}


async def test_a_second_ctrl_c_ends_at_once(bootstrap: str) -> None:
    """The first says what is waited for; the record whose handler was ended is not committed."""
    await send(bootstrap, [{"id": 0, "slow": "600"}])
    service = await Service.start(bootstrap, level="info")
    await service.until("begins 0")
    service.process.send_signal(signal.SIGINT)
    log_line = await service.logged("Ctrl-C again ends it at once")
    assert "counting stops: it waits up to 15 s for its handlers, which have 1 record; " in log_line
    service.process.send_signal(signal.SIGTERM)  # as a supervisor passes on what a service manager has sent to all
    service.process.send_signal(signal.SIGINT)
    await service.logged("counting ends at once; what it has not committed is handled again")
    await service.process.communicate()
    assert service.process.returncode == -signal.SIGINT
    assert set((await committed(bootstrap)).values()) <= {0}


async def test_brokers_are_waited_for_at_the_start_on_request() -> None:
    """A service that was started before its broker runs once that answers."""
    async with LocalCluster(properties={"group.min.session.timeout.ms": "100"}) as cluster:
        address = cluster.bootstrap_servers
        await cluster.stop()
        service = await Service.start(address, "--wait", "600")
        assert "; is one running? `busway up` starts one" in await service.logged(
            "counting waits up to 600 s at its start"
        )
        await cluster.start()
        await send(address, [{"id": 0}])
        await service.until("handled 0")
        assert (await service.end(signal.SIGTERM))[0] == 0


async def test_a_signal_ends_a_service_that_waits_for_its_brokers() -> None:
    """At once, with 0, as one that runs."""
    service = await Service.start("127.0.0.1:1", "--wait", "600")
    await service.logged("counting waits up to 600 s at its start")
    code, err = await service.end(signal.SIGTERM)
    assert (code, err) == (0, "")


async def test_a_service_that_cannot_start_says_why_in_one_line() -> None:
    """No broker there: exit code 1; a signal while it tries ends it too."""
    service = await Service.start("127.0.0.1:1")
    _, err = await service.process.communicate()
    assert service.process.returncode == 1
    assert err.decode().splitlines()[-1].startswith("busway: no broker can be reached: cannot connect to 127.0.0.1:1")
    assert "Traceback" not in err.decode()


async def test_two_processes_share_and_one_is_killed(bootstrap: str) -> None:
    """Every ride is handled at least once; those before the kill by both, those after by the one that is left."""
    await send(bootstrap, [{"id": number} for number in range(4)], partition=None)
    first, second = await Service.start(bootstrap), await Service.start(bootstrap)
    async with Admin(bootstrap) as admin, asyncio.timeout(SECONDS):
        while True:
            if "counting" in [group.group_id for group in await admin.list_groups()]:
                members = (await admin.describe_group("counting")).members
                if sorted(len(member.partitions) for member in members) == [1, 1]:
                    break
            await asyncio.sleep(0.05)
    await send(bootstrap, [{"id": number} for number in range(10, 30)], partition=None)
    await second.end(signal.SIGKILL)
    await send(bootstrap, [{"id": number} for number in range(30, 50)], partition=None)
    wanted = {*range(4), *range(10, 50)}
    async with asyncio.timeout(SECONDS):
        while set(lines := await handled(bootstrap)) != wanted:
            await asyncio.sleep(0.05)
    code, _ = await first.end(signal.SIGINT)
    assert code == 0
    assert max(collections.Counter(lines).values()) <= 2
