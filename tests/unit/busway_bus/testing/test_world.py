"""Whole nodes and clients under a seed: the same history for the same seed, crashes after which nothing runs, freezes."""

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any

import pytest

import busway
from busway_bus.testing.sim_tasks import end
from busway_bus.testing.world import Crashed, SimulationErrors, Stuck, World

TOPIC = "t"


async def send(bootstrap_servers: str, values: list[bytes]) -> None:
    """Send and wait for each acknowledgement."""
    async with busway.Producer(bootstrap_servers) as producer:
        for value in values:
            await producer.send_and_wait(TOPIC, value)


async def read(bootstrap_servers: str, count: int) -> list[bytes]:
    """So many records of the topic, by a group."""
    values: list[bytes] = []
    async with busway.Consumer(
        bootstrap_servers=bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        await consumer.subscribe([TOPIC])
        while len(values) < count:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                values += [record.value for record in records]
    return values


async def exchange(world: World) -> list[bytes]:
    """Two producers and a group."""
    node = world.node("n1")
    await node.start()
    clients = [world.process(name).start(send, node.bootstrap_servers, [name.encode()] * 5) for name in ("a", "b")]
    await asyncio.gather(*clients)
    values = await world.process("reader").run(read, node.bootstrap_servers, 10)
    await node.stop()
    return sorted(values)


def test_the_same_seed_gives_the_same_history() -> None:
    """And another one another."""
    worlds = [World(seed) for seed in (1, 2, 1)]
    for world in worlds:
        assert world.run(exchange) == [b"a"] * 5 + [b"b"] * 5
    digests = [world.trace.digest for world in worlds]
    assert digests[0] == digests[2] != digests[1]
    assert worlds[0].trace.lines() == worlds[2].trace.lines()


@pytest.mark.slow
def test_the_history_does_not_depend_on_the_interpreters_hash_seed() -> None:
    """Two interpreters agree, wherever their sets and addresses are."""
    program = (
        "import tests.unit.busway_bus.testing.test_world as t\n"
        "for seed in range(3):\n"
        "    world = t.World(seed); world.run(t.exchange); print(world.trace.digest)\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True
        )
        for seed in ("1", "77")
    ]
    first, second = [process.communicate()[0] for process in running]
    assert first.count("\n") == 3
    assert first == second


async def work(ran: list[str]) -> None:
    """Timers, out of their order, and a thread that is waited for."""
    loop = asyncio.get_running_loop()
    loop.call_later(2, ran.append, "second")
    loop.call_later(1, ran.append, "first")
    try:
        await loop.run_in_executor(None, ran.append, "thread")
    finally:
        ran.append("finally")


def test_nothing_of_a_crashed_process_runs_again() -> None:
    """No step of a task, no timer, no answer of a thread, no protocol, and no `finally` either."""

    async def workload(world: World) -> list[str]:
        ran: list[str] = []
        process = world.process("p")
        outcome = process.start(work, ran)
        await world.sleep(0.00001)
        process.crash()
        with pytest.raises(Crashed, match="p: killed"):
            await outcome
        with pytest.raises(Crashed, match="not running"):
            await process.run(work, ran)
        await world.sleep(10)
        return ran

    assert World().run(workload) == []


def test_a_task_that_never_began_is_let_go_with_what_it_would_await() -> None:
    """A crash comes between a request and the first step of its handler: Python complains of neither coroutine."""

    async def nothing() -> None:
        """A handler."""

    async def carry_out(answer: Coroutine[Any, Any, None]) -> None:
        await answer

    answer = nothing()
    end(carry_out(answer))
    assert inspect.getcoroutinestate(answer) == inspect.CORO_CLOSED


def test_a_frozen_process_waits_and_goes_on() -> None:
    """Its timers pile up, in their order; what its threads do waits too."""

    async def workload(world: World) -> list[str]:
        ran: list[str] = []
        process = world.process("p")
        outcome = process.start(work, ran)
        await world.sleep(0.00001)
        process.freeze()
        await world.sleep(10)
        assert ran == []
        process.thaw()
        await outcome
        return ran

    assert World().run(workload) == ["first", "second", "thread", "finally"]


def test_acknowledged_records_outlive_kills_and_power_cuts() -> None:
    """On the disk of the same host; clients find the node again by themselves."""

    async def workload(world: World) -> list[bytes]:
        node, client = world.node("n1"), world.process("client")
        await node.start()
        await client.run(send, node.bootstrap_servers, [b"1"])
        node.crash()
        await node.start()
        sending = client.start(send, node.bootstrap_servers, [b"2", b"3"])
        await world.sleep(0.004)
        node.power_cut()
        await world.sleep(5)
        await node.start()
        await sending
        return await client.run(read, node.bootstrap_servers, 3)

    assert World(3).run(workload)[:3] == [b"1", b"2", b"3"]


def test_a_workload_without_end_is_stuck() -> None:
    """The stacks say where."""

    async def waits(_: World) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match=r"(?s)nothing is left to happen.*waits"):
        World().run(waits)

    async def sleeps(world: World) -> None:
        while True:
            await world.sleep(1)

    with pytest.raises(Stuck, match="100 s of virtual time"):
        World(virtual_s_max=100).run(sleeps)

    async def spins(world: World) -> None:
        while True:
            await world.sleep(0)

    with pytest.raises(Stuck, match="500 steps"):
        World(steps_max=500).run(spins)


def test_a_mistake_fails_the_workload() -> None:
    """An exception that is not caught, in a process that lives."""

    async def workload(world: World) -> None:
        def fail() -> None:
            raise ValueError("ours")

        with world.process("p").inside():
            asyncio.get_running_loop().call_soon(fail)
        await world.sleep(1)

    with pytest.raises(SimulationErrors, match=r"(?s)p: .*ValueError: ours"):
        World().run(workload)
    World(strict=False).run(workload)
