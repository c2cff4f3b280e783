"""Work on threads: what is called after it, and that their number is bounded."""

import asyncio
import threading
from functools import partial

import pytest

from busway_bus.log.sync_threads import SyncThreads


def waited(gate: threading.Event) -> None:
    gate.wait()


async def test_works_end_on_the_event_loop_with_what_they_raised() -> None:
    threads, ends = SyncThreads(2, "t"), []
    here = threading.current_thread()

    def fail() -> None:
        assert threading.current_thread() is not here
        raise OSError(28, "no space")

    def ended(problem: BaseException | None) -> None:
        assert threading.current_thread() is here
        ends.append(problem)

    threads.run(fail, ended)
    await threads.drain()
    threads.run(lambda: None, ended)
    await threads.drain()
    assert [type(problem) for problem in ends] == [OSError, type(None)]
    assert threads.running == 0
    threads.close()


async def test_no_more_than_so_many_run_at_once_and_the_others_wait() -> None:
    threads, gate, begun, ends = SyncThreads(2, "t"), threading.Event(), threading.Semaphore(0), []

    def work() -> None:
        begun.release()
        gate.wait()

    for _ in range(5):
        threads.run(work, ends.append)
    for _ in range(2):
        begun.acquire()
    assert not begun.acquire(blocking=False)
    assert (threads.running, len(threads._threads)) == (5, 2)
    gate.set()
    await threads.drain()
    assert ends == [None] * 5
    threads.close()


@pytest.mark.parametrize("allowed", [0, 1])
async def test_a_system_without_room_for_a_thread_ends_no_work_silently(
    monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    """Without any thread the work fails, else it waits for those that there are."""
    threads, gate, ends = SyncThreads(2, "t"), threading.Event(), []
    for _ in range(allowed):
        threads.run(partial(waited, gate), ends.append)

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    threads.run(lambda: None, ends.append)
    gate.set()
    await threads.drain()
    assert [type(problem) for problem in ends] == ([type(None)] * 2 if allowed else [RuntimeError])
    threads.close()


async def test_a_mistake_after_a_work_keeps_no_drain_waiting() -> None:
    threads, problems = SyncThreads(1, "t"), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context["exception"]))

    def fail(_: BaseException | None) -> None:
        raise RuntimeError("a mistake")

    threads.run(lambda: None, fail)
    await threads.drain()
    assert [str(problem) for problem in problems] == ["a mistake"]
    threads.close()


async def test_threads_end_when_they_are_not_used_any_more() -> None:
    """Also those that are not closed."""
    closed, forgotten = SyncThreads(1, "t"), SyncThreads(1, "t")
    for threads in (closed, forgotten):
        threads.run(lambda: None, lambda _: None)
        await threads.drain()
    ending = [*closed._threads, *forgotten._threads]
    closed.close()
    del threads, forgotten
    for thread in ending:
        thread.join()
