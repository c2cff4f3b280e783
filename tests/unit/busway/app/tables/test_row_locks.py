"""Which calls for the rows of a partition run at once; without a broker."""

import asyncio
from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.app.calling.depends import Current, current
from busway.app.tables.row_locks import WHOLE, RowLocks

KEYS = st.sampled_from([b"a", b"b", b"c", WHOLE])
STEPS = st.lists(st.tuples(st.sampled_from(["come", "come", "leave", "cancel"]), KEYS, st.integers(0, 7)), max_size=40)


class Calls:
    """Calls that came and have not gone, in their order, each with its key; `running` are those whose turn it is."""

    def __init__(self) -> None:
        self.turns = RowLocks()
        self.here: dict[asyncio.Task[None], Hashable] = {}
        self.running: dict[asyncio.Task[None], asyncio.Event] = {}

    async def _call(self, key: Hashable) -> None:
        me = asyncio.current_task()
        assert me is not None
        async with self.turns.turn(key):
            self.running[me] = asyncio.Event()
            try:
                await self.running[me].wait()
            finally:
                del self.running[me]

    def come(self, key: Hashable) -> None:
        """One more."""
        self.here[asyncio.get_running_loop().create_task(self._call(key))] = key

    async def go(self, task: asyncio.Task[None], *, cancelled: bool) -> None:
        """It ends, or is cancelled wherever it is."""
        if cancelled:
            task.cancel()
        elif task in self.running:
            self.running[task].set()
        else:
            return
        await asyncio.wait([task])
        del self.here[task]

    def due(self) -> list[asyncio.Task[None]]:
        """Return the tasks whose turn it is: those without an earlier one for the same rows."""
        tasks, before = [], list[Hashable]()
        for task, key in self.here.items():
            if not (before if key is WHOLE else {key, WHOLE} & set(before)):
                tasks.append(task)
            before.append(key)
        return tasks


async def settled() -> None:
    """Every task has done what it may."""
    for _ in range(5):
        await asyncio.sleep(0)


@settings(max_examples=50)
@given(STEPS)
def test_it_is_the_turn_of_whoever_comes_first(steps: list[tuple[str, Hashable, int]]) -> None:
    """However calls come, end and are cancelled: those run that wait for no earlier call, no others, and in the end all have."""

    async def run() -> None:
        current.set(Current())
        calls = Calls()
        for step, key, number in steps:
            if step == "come":
                calls.come(key)
            elif calls.here:
                await calls.go(list(calls.here)[number % len(calls.here)], cancelled=step == "cancel")
            await settled()
            assert calls.running.keys() == set(calls.due())
        while calls.here:
            await calls.go(calls.due()[0], cancelled=False)
            await settled()

    asyncio.run(run())


@pytest.mark.parametrize("before", [True, False])
async def test_a_call_that_is_cancelled_as_its_turn_comes_lets_the_next_one_in(*, before: bool) -> None:
    """Just before it would be let in or just after, but before it runs: no call waits for it for ever."""
    current.set(Current())
    calls = Calls()
    async with calls.turns.turn(b"a"):
        for _ in range(2):
            calls.come(b"a")
        second, third = calls.here
        await settled()
        if before:
            second.cancel()
    if not before:
        second.cancel()
    await settled()
    assert (list(calls.running), second.cancelled()) == ([third], True)
    await calls.go(third, cancelled=False)


async def test_a_deadline_stands_still_while_a_call_waits() -> None:
    """It has none as long as it waits, and then all the time that it had."""
    loop = asyncio.get_running_loop()
    turns = RowLocks()
    deadlines: list[float | None] = []

    async def timed() -> None:
        async with asyncio.timeout(60) as deadline:
            current.set(Current(deadline=deadline))
            loop.call_soon(lambda: deadlines.append(deadline.when()))
            async with turns.turn(b"a"):
                deadlines.append(deadline.when())

    async with turns.turn(b"a"):
        waiting = asyncio.ensure_future(timed())
        await settled()
    before = loop.time()
    await waiting
    none, again = deadlines
    assert none is None
    assert again is not None
    assert before + 59 < again <= loop.time() + 60
