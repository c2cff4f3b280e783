"""The deterministic loop: order, time, threads, and what it refuses."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from busway_bus.testing.sim_loop import READING_S, NotSimulated
from busway_bus.testing.world import World


def test_time_is_virtual() -> None:
    """A year passes at once, and stands still while code runs, but for what its steps and readings take."""

    async def workload(world: World) -> None:
        begun = world.now
        assert world.loop.time() == world.loop.time()
        reading = world.process("p").process.machine.monotonic_s
        first, second = reading(), reading()
        assert second - first == pytest.approx(READING_S)
        await asyncio.sleep(3600 * 20)
        assert world.now - begun == pytest.approx(3600 * 20, abs=0.01)

    World().run(workload)


def test_a_process_keeps_the_order_of_its_callbacks_and_processes_mix() -> None:
    """As if each had a loop of its own; which is first differs by seed."""

    async def workload(world: World) -> list[str]:
        ran: list[str] = []

        async def work(name: str) -> None:
            for at in range(3):
                asyncio.get_running_loop().call_soon(ran.append, f"{name}{at}")
            await asyncio.sleep(0)

        await asyncio.gather(*(world.process(name).run(work, name) for name in "ab"))
        return ran

    histories = {tuple(World(seed).run(workload)) for seed in range(20)}
    assert len(histories) > 1
    for history in histories:
        for name in "ab":
            assert [entry for entry in history if entry[0] == name] == [f"{name}{at}" for at in range(3)]


def test_timers_of_one_moment_come_in_any_order() -> None:
    """And those of different moments in theirs; a cancelled one never."""

    async def workload(world: World) -> list[int]:
        ran: list[int] = []
        when = world.now + 1
        for number in range(4):
            world.loop.call_at(when, ran.append, number)
        world.loop.call_at(when, ran.append, 99).cancel()
        world.loop.call_at(when + 0.5, ran.append, 4)
        for _ in range(2_000):  # more than are carried along
            world.loop.call_later(1, ran.append, 99).cancel()
        await asyncio.sleep(3)
        return ran

    histories = [World(seed).run(workload) for seed in range(10)]
    assert len({tuple(history) for history in histories}) > 1
    for history in histories:
        assert sorted(history[:4]) == [0, 1, 2, 3]
        assert history[4:] == [4]


def test_work_in_threads_is_done_later_and_one_by_one_in_an_executor_of_one() -> None:
    """Its outcome is reported, an error too; with a slow disk all of it takes longer."""

    async def workload(world: World) -> float:
        ran: list[int] = []

        def fail() -> None:
            raise ValueError("told")

        async def work() -> float:
            loop = asyncio.get_running_loop()
            executor = ThreadPoolExecutor(1)
            futures = [loop.run_in_executor(executor, ran.append, number) for number in range(10)]
            assert ran == []
            await asyncio.gather(*futures)
            assert ran == list(range(10))
            with pytest.raises(ValueError, match="told"):
                await asyncio.to_thread(fail)
            begun = loop.time()
            await loop.run_in_executor(None, process.process.host.__setattr__, "waited_s", 2.0)
            return loop.time() - begun

        process = world.process("p")
        return await process.run(work)

    assert World().run(workload) == pytest.approx(2.0, abs=0.01)


def test_a_loop_that_waits_for_the_disk_stands_still() -> None:
    """Its other callbacks run when that is over."""

    async def workload(world: World) -> None:
        process = world.process("p")

        async def work() -> float:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            process.process.host.waited_s = 3.0
            await asyncio.sleep(0)
            return loop.time() - begun

        assert await process.run(work) == pytest.approx(3.0, abs=0.01)

    World().run(workload)


def test_identifiers_and_chance_are_streams_of_their_own() -> None:
    """Of a process and a purpose: equal for the same seed, and another incarnation has others."""

    async def workload(world: World) -> list[Any]:
        machines = [world.process("p").process.machine for _ in range(2)]
        machines[0].chance.random()
        return [machine.uuid4() for machine in machines] + [machine.chance.random() for machine in machines]

    first, second, other = (World(seed).run(workload) for seed in (1, 1, 2))
    assert first == second != other
    assert len(set(map(str, first))) == 4
    assert first[0].version == 4


def test_the_wall_clock_jumps_and_the_monotonic_one_does_not() -> None:
    """Of one host."""

    async def workload(world: World) -> None:
        process, other = world.process("p"), world.process("q")
        clock, before = process.process.machine, process.process.machine.wall_ms()
        begun = clock.monotonic_s()
        process.jump(-3600)
        assert clock.wall_ms() == pytest.approx(before - 3_600_000, abs=10)
        assert clock.monotonic_s() - begun < 1
        assert other.process.machine.wall_ms() == pytest.approx(before, abs=10)

    World().run(workload)


def test_a_set_of_tasks_has_the_same_order_in_every_run() -> None:
    """It is that of their making's numbers, not of their addresses."""

    async def workload(_: World) -> list[int]:
        async def nothing() -> None:
            await asyncio.sleep(0)

        tasks = [asyncio.ensure_future(nothing()) for _ in range(50)]
        numbers = {id(task): number for number, task in enumerate(tasks)}
        done, _pending = await asyncio.wait(tasks)
        return [numbers[id(task)] for task in done]

    assert World().run(workload) == World().run(workload)


def test_what_there_is_not_says_so() -> None:
    """By name, with a remedy."""

    async def workload(world: World) -> None:
        loop = world.loop
        with pytest.raises(NotSimulated, match="TLS"):
            await loop.create_connection(asyncio.Protocol, "p", 1, ssl=True)
        with pytest.raises(NotSimulated, match="host and port"):
            await loop.create_server(asyncio.Protocol, sock=object())
        with pytest.raises(NotSimulated, match="cannot start a program"):
            await asyncio.create_subprocess_exec("true")
        with pytest.raises(NotSimulated, match="descriptors"):
            loop.add_reader(0, print)
        loop.add_signal_handler(2, print)
        assert not loop.remove_signal_handler(2)

    World().run(workload)
