"""What a request costs, counted instead of timed: calls, system calls, and memory that is held at its most.

A machine's load changes no count, so a bound here is a little above what is needed today; a change that needs more raises it and says why.
Counted is the thread of the event loop from a frame to the bytes of its answer, for one request of many alike: what runs in the context of
the requests, which every task, timer and callback that they cause inherits, and nothing of the node's own timers.
"""

import asyncio
import contextvars
import gc
import re
import socket
import sys
import tracemalloc
from collections import Counter
from types import FrameType
from typing import Any, Final, NamedTuple

import pytest
from tests.support.raw_client import RawClient, frame

from busway_bus.handlers.common.context import Peer
from busway_bus.log.sync_threads import Ended, SyncThreads, Work
from busway_bus.server.dispatch import Dispatcher, Reply
from busway_bus.server.stream import Piece
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from busway_protocol.records.builder import BatchBuilder

REQUESTS: Final = 20
"""Of each kind, of which the cost of one is the mean: what comes at every tenth (an index entry) is in it."""
PARTITIONS: Final = 10
PRODUCE_VERSION, FETCH_VERSION = 9, 12
WARMED: Final = 2
"""Records that each partition has before anything is counted."""
BATCH_BYTES: Final = 512 * 1024
HELD_BYTES_MAX: Final = 64 * 1024


OURS: Final = re.compile(r"busway_bus/|busway_protocol/|<busway ")
"""Our modules and what they compile for messages; the library of the Python that runs this may change."""


IN_REQUEST: Final = contextvars.ContextVar("in_request", default=False)
"""Whether the code that runs was caused by a request that is counted."""


class AtOnce(SyncThreads):
    """Carries out what is for a thread before `run` returns, so that the same is ready whenever the event loop looks.

    Attributes:
        working: whether it does so now, which is no cost of the event loop.
    """

    def __init__(self) -> None:
        super().__init__(1, "at once")
        self.working = False

    def run(self, work: Work, ended: Ended) -> None:
        """Work, and what follows."""
        self.running += 1
        self.working = True
        try:
            work()
        finally:
            self.working = False
        asyncio.get_running_loop().call_soon(self._ended, ended, None)


DISK: Final = AtOnce()


class Costs(NamedTuple):
    """Of one request: functions of ours that run, functions in C that they call, and system calls on files among those."""

    python: float
    c: float
    system: float


def batch(size: int, records: int = 1) -> bytes:
    """A batch of so many records of `size` bytes."""
    builder = BatchBuilder()
    for _ in range(records):
        builder.append(1_700_000_000_000, None, bytes(size))
    return bytes(builder.build())


def produce(topic: str, records: bytes, partitions: int = 1) -> memoryview:
    """To each partition of a topic, the same batch."""
    data = [PartitionProduceData(index=number, records=records) for number in range(partitions)]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    return memoryview(frame(request, PRODUCE_VERSION))[4:]


def fetch(topic: str, offset: int, max_bytes: int, max_wait_ms: int = 0) -> memoryview:
    """Of a topic's first partition, without a session."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    return memoryview(frame(request, FETCH_VERSION))[4:]


async def answered(dispatcher: Dispatcher, frames: list[memoryview]) -> list[list[Piece]]:
    """All requests, one behind the other as a pipelining client sends them, and their answers."""
    replies = [dispatcher(frame) for frame in frames]
    answers: list[list[Piece]] = []
    for reply in replies:
        if isinstance(reply, Reply):
            done = asyncio.Event()
            reply.when_done(done.set)
            await done.wait()
            reply = reply.pieces()  # noqa: PLW2901 - what it was waited for
        assert reply is not None
        answers.append(reply)
    return answers


async def counted(dispatcher: Dispatcher, frames: list[memoryview]) -> Costs:
    """What one of these requests costs."""
    calls: Counter[str] = Counter()

    def note(running: FrameType, event: str, function: Any) -> None:
        if IN_REQUEST.get() and not DISK.working and OURS.search(running.f_code.co_filename):
            calls[event] += 1
            if event == "c_call" and getattr(function, "__module__", None) == "posix":
                calls["system"] += 1

    async def ask() -> None:
        IN_REQUEST.set(True)
        await answered(dispatcher, frames)

    gc.collect()
    gc.disable()
    asking = asyncio.ensure_future(ask())  # a context of its own
    sys.setprofile(note)
    try:
        await asking
    finally:
        sys.setprofile(None)
        gc.enable()
    count = len(frames)
    return Costs(calls["call"] / count, calls["c_call"] / count, calls["system"] / count)


async def most_bytes(dispatcher: Dispatcher, request: memoryview) -> int:
    """What one request holds at its most, beyond its own frame."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        await answered(dispatcher, [request])
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.fixture
async def dispatcher(cluster: LocalCluster) -> Dispatcher:
    """A connection's, on a node with a topic of each durability, in which leader epochs have begun and functions are compiled.

    The node syncs without threads: how many logs one takes before the event loop looks is chance, and the cost of an answer with it.
    """
    assert cluster.node is not None
    node = cluster.node.services
    flusher = cluster.node._flusher
    await flusher.drain()
    flusher.close()
    flusher._threads = DISK
    topics = [
        CreatableTopic(
            name=durability,
            num_partitions=PARTITIONS,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name="durability", value=durability)],
        )
        for durability in ("os", "flush")
    ]
    async with RawClient(cluster.bootstrap_servers) as client:
        await client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
    made = Dispatcher("local", node, next(iter(cluster.node.advertised.values())), Peer())
    for durability in ("os", "flush"):
        await answered(made, [produce(durability, batch(10), PARTITIONS)] * WARMED)
    for partition in node.replicas.local:
        while partition.log.wants_flush or partition.log.flushed_offset < partition.log.end_offset:
            node.replicas.logs.flush(partition)
            await asyncio.sleep(0)
    return made


CASES: Final[dict[str, tuple[list[memoryview], Costs]]] = {
    "produce, durability=os": ([produce("os", batch(128))] * REQUESTS, Costs(89, 59, 1.2)),
    "produce, pipelined, flushed": ([produce("flush", batch(128))] * REQUESTS, Costs(101, 69, 1.2)),
    "produce, alone, flushed": ([produce("flush", batch(128))], Costs(128, 92, 2)),
    "produce, 10 partitions, durability=os": ([produce("os", batch(128), PARTITIONS)], Costs(765, 345, 12)),
    "produce, 10 partitions, flushed": ([produce("flush", batch(128), PARTITIONS)], Costs(1022, 580, 12)),
    "fetch": ([fetch("os", 0, 10**6)] * REQUESTS, Costs(52, 63, 0)),
}
"""Requests, and the most that one of them may cost: a little more than today, with the compiled twin of `records/walk` and without. Of
system calls a batch has one, and an index entry now and then another."""


WAITING_FETCH: Final = Costs(87, 76, 0.4)
"""Of a fetch that waits and is answered; the produce that all of them wait for is in the mean."""


@pytest.mark.slow
async def test_no_request_costs_more_than_it_did(dispatcher: Dispatcher) -> None:
    """Calls of all kinds, and one write for each batch."""
    excess = {}
    for name, (requests, bound) in CASES.items():
        await answered(dispatcher, requests)
        costs = await counted(dispatcher, requests)
        if any(cost > most for cost, most in zip(costs, bound, strict=True)):
            excess[name] = (costs, bound)
    assert not excess


@pytest.mark.slow
async def test_what_the_node_does_meanwhile_is_no_cost_of_a_request(dispatcher: Dispatcher) -> None:
    """A request that waits for its sync costs the same alone and while another connection's requests are answered in between."""
    requests = [produce("flush", batch(128))]
    await answered(dispatcher, requests)
    alone = await counted(dispatcher, requests)

    async def others() -> None:
        while True:
            await answered(dispatcher, [fetch("os", 0, 10**6)])
            await asyncio.sleep(0)

    busy = asyncio.ensure_future(others())
    try:
        assert await counted(dispatcher, requests) == alone
    finally:
        busy.cancel()


@pytest.mark.slow
async def test_no_fetch_that_waits_costs_more_than_it_did(cluster: LocalCluster, dispatcher: Dispatcher) -> None:
    """Many wait at the end of a partition, and one batch ends the wait of all."""
    assert cluster.node is not None
    partition = cluster.node.services.replicas.find("os", 0)

    def requests() -> list[memoryview]:
        waiting = fetch("os", partition.high_watermark, 10**6, max_wait_ms=60_000)
        return [*[waiting] * REQUESTS, produce("os", batch(10_000))]

    await answered(dispatcher, requests())
    costs = await counted(dispatcher, requests())
    assert all(cost <= most for cost, most in zip(costs, WAITING_FETCH, strict=True)), costs


@pytest.mark.slow
async def test_a_batch_is_copied_once_to_be_looked_through_and_never_to_be_read(dispatcher: Dispatcher) -> None:
    """What a request holds at its most, beside the batch itself; of an answer to a fetch, none of it is in memory."""
    for durability in ("os", "flush"):
        request = produce(durability, batch(BATCH_BYTES))
        await answered(dispatcher, [request])
        assert await most_bytes(dispatcher, request) < BATCH_BYTES + HELD_BYTES_MAX
    request = fetch("os", WARMED, 10 * BATCH_BYTES)
    (pieces,) = await answered(dispatcher, [request])
    assert sum(map(len, pieces)) > BATCH_BYTES
    del pieces
    assert await most_bytes(dispatcher, request) < HELD_BYTES_MAX


@pytest.mark.slow
async def test_answers_to_what_one_sync_covered_go_out_together(cluster: LocalCluster, dispatcher: Dispatcher) -> None:
    """A client that sends its requests one behind the other gets their answers with a write for each sync, not for each answer."""
    assert cluster.node is not None
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    data = produce("flush", batch(128))
    request = len(data).to_bytes(4, "big") + bytes(data)
    calls: Counter[str] = Counter()

    def client() -> None:
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(request * REQUESTS)
            for _ in range(REQUESTS):
                size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
                assert len(connection.recv(size, socket.MSG_WAITALL)) == size

    def note(_: object, event: str, function: Any) -> None:
        if event == "c_call" and isinstance(getattr(function, "__self__", None), socket.socket):
            calls[function.__name__] += 1

    talk = asyncio.get_running_loop().run_in_executor(None, client)
    sys.setprofile(note)
    try:
        await talk
    finally:
        sys.setprofile(None)
    writes = calls["send"] + calls["sendmsg"]
    assert 0 < writes <= REQUESTS / 4, calls
