"""A broker and a registry in a thread, for tests without a running event loop.

Here: the thread and its loop.
Not here: their start (`cluster.running_cluster`).
"""

import asyncio
import contextlib
import threading
from collections.abc import Collection, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final

from busway.testing.cluster import Broker, Cluster, running_cluster
from busway.testing.partition import Direction

START_S: Final = 20.0


class _Elsewhere:
    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop

    async def _there(self, call: Coroutine[Any, Any, None]) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    @property
    def node_ids(self) -> Sequence[int]:
        return self._broker.node_ids

    async def start(self) -> None:
        await self._there(self._broker.start())

    async def stop(self) -> None:
        await self._there(self._broker.stop())

    async def crash(self) -> None:
        await self._there(self._broker.crash())

    async def kill(self, node_id: int) -> None:
        await self._there(self._broker.kill(node_id))

    async def restart(self, node_id: int) -> None:
        await self._there(self._broker.restart(node_id))

    async def cut(self, directions: Collection[Direction]) -> None:
        await self._there(self._broker.cut(directions))

    async def heal(self, directions: Collection[Direction] | None = None) -> None:
        await self._there(self._broker.heal(directions))


@contextlib.contextmanager
def cluster_in_thread(nodes: int = 1) -> Iterator[Cluster]:
    started: Future[tuple[Cluster, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        async with running_cluster(nodes) as cluster:
            loop, ended = asyncio.get_running_loop(), asyncio.Event()
            started.set_result((cluster, loop, ended))
            await ended.wait()

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as problem:
            if started.done():
                raise
            started.set_exception(problem)

    thread = threading.Thread(target=work, name="busway-cluster")
    thread.start()
    try:
        cluster, loop, ended = started.result(START_S)
        try:
            yield Cluster(
                bootstrap_servers=cluster.bootstrap_servers,
                schema_registry=cluster.schema_registry,
                broker=_Elsewhere(cluster.broker, loop),
            )
        finally:
            loop.call_soon_threadsafe(ended.set)
    finally:
        thread.join()
