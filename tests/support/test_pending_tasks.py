"""The report of pending tasks."""

import asyncio
import weakref

from tests.support.pending_tasks import pending_tasks


class Waiting:
    """What a weak reference can have."""


async def inner(waiter: "asyncio.Future[None]") -> None:
    await waiter


async def outer(waiter: "asyncio.Future[None]") -> None:
    await inner(waiter)


async def test_a_task_is_shown_with_all_that_it_waits_for() -> None:
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(outer(waiter), name="the hung one")
    await asyncio.sleep(0)
    proxy = weakref.proxy(Waiting())
    assert isinstance(proxy, weakref.ProxyType), "of an object that is gone"
    text = pending_tasks()
    waiter.set_result(None)
    await task
    paragraph = text[text.index("the hung one:") :].splitlines()
    assert [line.rsplit(" ", 1)[1] for line in paragraph[1:3]] == ["outer", "inner"]
    assert "the hung one:" not in pending_tasks()
