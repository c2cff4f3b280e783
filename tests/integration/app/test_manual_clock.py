"""Time that a test lets pass: what stands until then, in which order it ends, and what goes on without it."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from tests.support.patience import patient

from busway import App, Batch, Depends, Exponential, Extension, Retry
from busway.app.monitoring.health import Health
from busway.sql import Outbox
from busway.testing import TestBus, frozen_time
from busway.testing.clock import ManualTime

pytestmark = pytest.mark.slow


class Recorder:
    """An app of one topic of numbers, and what its handlers tell, with the app's time at that moment."""

    def __init__(self, **options: Any) -> None:
        self.app = App("recorder", **options)
        self.numbers = self.app.topic("numbers", value=int, format="json", partitions=1)
        self.recorded: list[tuple[Any, float]] = []
        self._came = asyncio.Event()
        self.bus: TestBus

    def tell(self, what: Any) -> None:
        """It happened now."""
        clock = self.bus._clock
        assert isinstance(clock, ManualTime)
        self.recorded.append((what, clock.now_s))
        self._came.set()

    async def came(self, count: int) -> None:
        """Wait until so many entries are recorded."""
        async with asyncio.timeout(patient(20)):
            while len(self.recorded) < count:
                self._came.clear()
                await self._came.wait()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[TestBus]:
        """Under a clock of the test's."""
        async with self.app.test(clock="manual") as self.bus:
            yield self.bus


async def test_nothing_ends_by_itself() -> None:
    """A millisecond of a handler's is longer than any time of the test's."""
    recorder = Recorder()

    @recorder.app.subscribe(recorder.numbers)
    async def handle(number: int) -> None:
        recorder.tell("begun")
        await asyncio.sleep(0.001)
        recorder.tell("ended")

    async with recorder.running() as bus:
        await bus.send(recorder.numbers, 1)
        await recorder.came(1)
        await asyncio.sleep(0.05)
        with pytest.raises(AssertionError, match=r"numbers-0.*; time stands: await bus\.advance\(0\.001\) ends"):
            await bus.settle(0.05)
        assert recorder.recorded == [("begun", 0)]
        await bus.advance(0.001)
        await bus.settle()
    assert recorder.recorded == [("begun", 0), ("ended", 0.001)]


async def test_every_wait_of_the_app_ends_in_its_order() -> None:
    """A handler's, its task's, a dependency's, an extension's, the lifespan's; deadlines, too."""
    recorder = Recorder(lifespan=lambda app: beating())

    @contextlib.asynccontextmanager
    async def beating() -> AsyncIterator[None]:
        async def beat() -> None:
            while True:
                await asyncio.sleep(100)
                recorder.tell("beat")

        await asyncio.sleep(0.01)  # time passes while the app starts
        beating = asyncio.create_task(beat())
        yield
        beating.cancel()

    class Late(Extension):
        async def starting(self, app: App) -> None:
            asyncio.get_running_loop().call_later(70, recorder.tell, "extension")

    async def slow() -> str:
        await asyncio.sleep(10)
        recorder.tell("dependency")
        return "value"

    async def aside() -> None:
        await asyncio.sleep(5)
        recorder.tell("task")

    recorder.app.extend(Late())

    @recorder.app.subscribe(
        recorder.numbers, timeout_s=60, retry=Retry(attempts=2, backoff=Exponential(initial=20, max=20, jitter=0))
    )
    async def handle(number: int, value: str = Depends(slow)) -> None:
        task = asyncio.create_task(aside())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(7):
                await asyncio.Event().wait()
        recorder.tell("timeout")
        await task
        await asyncio.sleep(600 if len(recorder.recorded) == 3 else 0)

    async with recorder.running() as bus:
        await bus.send(recorder.numbers, 1)
        await bus.advance(98)
        await bus.settle()
        await bus.advance(50)
    names = [name for name, _ in recorder.recorded]
    assert names[:4] == ["dependency", "task", "timeout", "extension"]
    assert names[4:] == ["dependency", "task", "timeout", "beat"]
    assert [moment for name, moment in recorder.recorded if name in ("dependency", "task", "timeout")] == [
        10,
        15,
        17,
        90,
        95,
        97,
    ]


async def test_windows_of_batches_stand() -> None:
    """A batch waits for more until its time has come."""
    recorder = Recorder()

    @recorder.app.subscribe(recorder.numbers, batch=Batch(max_wait_s=30))
    async def handle(numbers: list[int]) -> None:
        recorder.tell(numbers)

    async with recorder.running() as bus:
        await bus.send(recorder.numbers, 1)
        await bus.advance(29)
        await bus.send(recorder.numbers, 2)
        await bus.advance(0.5)
        assert recorder.recorded == []
        await bus.advance(1)
    assert recorder.recorded == [([1, 2], 30)]


async def test_an_outbox_stands(tmp_path: Path) -> None:
    """A row that another process wrote is seen at the next look."""
    url = f"sqlite+aiosqlite:///{tmp_path}/shop.db"
    engine, others = create_async_engine(url), create_async_engine(url)
    recorder = Recorder()
    recorder.app.extend(Outbox(engine, poll_interval_s=40))

    @recorder.app.subscribe(recorder.numbers)
    async def handle(number: int) -> None:
        recorder.tell(number)

    async with recorder.running() as bus:
        elsewhere = Outbox(others, relay=False)
        await elsewhere.prepare(recorder.numbers)
        async with others.begin() as connection:
            await elsewhere.send(connection, recorder.numbers, 7)
        await bus.advance(39)
        assert recorder.recorded == []
        await bus.advance(2)
        await bus.settle()
        await elsewhere.close()
    assert [number for number, _ in recorder.recorded] == [7]
    await engine.dispose()
    await others.dispose()


async def test_what_is_due_is_done_before_time_passes_on() -> None:
    """A batch of the app's producer that fills up, a call in a thread, a broker that is away for a moment."""
    recorder = Recorder(producer={"linger_ms": 15})
    out = recorder.app.topic("out", value=int, format="json", partitions=1)

    def block() -> int:
        time.sleep(0.03)
        return threading.get_ident()

    @recorder.app.subscribe(recorder.numbers)
    async def handle(number: int) -> None:
        for _ in range(3):
            await asyncio.sleep(10)
            await out.send(number)
            recorder.tell(await asyncio.to_thread(block) != threading.get_ident())

    async with recorder.running() as bus:
        await bus.send(recorder.numbers, 1)
        await bus.advance(30)
        assert recorder.recorded == [(True, 10), (True, 20), (True, 30)]
        await bus.crash_broker()
        await bus.send(recorder.numbers, 2)
        await bus.advance(10)
        await bus.advance(20)
        await bus.settle()
        assert len(await bus.records(out)) == 6


async def test_an_hour_of_commits_takes_no_hour() -> None:
    """Looks at regular intervals cost what they do, and nothing for what lies between."""
    recorder = Recorder(commit_interval_s=10)

    @recorder.app.subscribe(recorder.numbers)
    async def handle(number: int) -> None:
        await asyncio.sleep(3600)
        recorder.tell(number)

    async with recorder.running() as bus:
        assert recorder.app.worker is not None
        member = recorder.app.worker.consumer.member_id()
        await bus.send(recorder.numbers, 1)
        async with asyncio.timeout(patient(20)):
            await bus.advance(3600)
        assert recorder.recorded == [(1, 3600)]
        assert recorder.app.worker.consumer.member_id() == member


async def test_a_rest_that_is_too_small_to_add_ends() -> None:
    """Waiting until a moment by what is left of it, in floating-point numbers, ends."""
    recorder = Recorder()

    @recorder.app.subscribe(recorder.numbers)
    async def handle(number: int) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + 0.1 + 0.2
        while (left_s := end_s - loop.time()) > 0:
            await asyncio.sleep(left_s / 2 if left_s > 1e-12 else left_s)
        recorder.tell(number)

    async with recorder.running() as bus:
        await bus.send(recorder.numbers, 1)
        await bus.advance(0.3)
        await bus.settle()
    assert [number for number, _ in recorder.recorded] == [1]


async def test_a_thread_that_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time does not pass on beside it."""
    monkeypatch.setattr(frozen_time, "REACT_S", 0.1)
    recorder, released = Recorder(), threading.Event()

    @recorder.app.subscribe(recorder.numbers)
    def handle(number: int) -> None:
        released.wait(patient(20))

    async with recorder.running() as bus:
        await bus.send(recorder.numbers, 1)
        try:
            with pytest.raises(AssertionError, match=r"1 calls in threads did not end within 0\.1 s"):
                await bus.advance(60)
        finally:
            released.set()
        await bus.settle()


async def test_an_app_is_stopped_while_its_time_stands() -> None:
    """Its drain is real: a handler that waits for time is waited for so long, and no longer."""
    recorder = Recorder(drain_timeout_s=0.05)

    @recorder.app.subscribe(recorder.numbers)
    async def handle(number: int) -> None:
        recorder.tell(number)
        await asyncio.sleep(60)

    async with recorder.running() as bus:
        await bus.send(recorder.numbers, 1)
        await recorder.came(1)
        async with asyncio.timeout(patient(20)):
            await recorder.app.stop()
        await recorder.app.start()


async def test_the_health_of_an_app_has_one_clock() -> None:
    """Records are finished in the app's time, and the test asks in real time: no figure is below 0."""
    recorder, health = Recorder(), Health()
    recorder.app.extend(health)

    @recorder.app.subscribe(recorder.numbers)
    async def handle(number: int) -> None:
        recorder.tell(health.now_s())

    async with recorder.running() as bus:
        await bus.advance(1000)
        began_s = health.now_s()
        await bus.send(recorder.numbers, 1)
        await bus.settle()
        ((handled_s, _),) = recorder.recorded
        assert began_s <= handled_s <= health.now_s()
        (progress,) = health.progress.all(health.now_s())
        assert progress.idle_s >= 0
