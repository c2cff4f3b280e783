"""What a connection holds while an earlier answer is not there: it counts, whatever made it wait."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from busway.net.machine import OS
from busway_bus.handlers.common.pending_response import PendingResponse
from busway_bus.kernel.counters import RequestCounters
from busway_bus.kernel.limits import REQUEST_BYTES_WORKED_MAX
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.scheduling.fair_share import FairScheduler
from busway_bus.server.connection import Connection
from busway_bus.server.dispatch import Reply
from busway_bus.server.frame_reader import scratch_buffer
from busway_bus.server.request_memory import RequestMemory
from busway_bus.server.stream import Piece, Shared, Stream

MIB = 1024 * 1024


class Line(Stream):
    """A client that takes everything at once."""

    def __init__(self, shared: Shared) -> None:
        super().__init__("peer", shared)
        self.reading = True
        self.written = 0
        self.sent: list[object] = []

    def pause_reading(self) -> None:
        """Not now."""
        self.reading = False

    def resume_reading(self) -> None:
        """Now."""
        self.reading = True

    def close(self) -> None:
        """Never."""

    def abort(self) -> None:
        """Gone."""
        self._forget()

    def _send(self) -> bool:
        piece = self._queue.popleft()
        self._queued_bytes -= len(piece)
        self.written += len(piece)
        self.sent.append(piece)
        return True


class Bench:
    """A connection whose requests are answered as a test says, and whose turn is over when the test moves its clock.

    Attributes:
        now: of the clock of turns, in s.
        shared: what its stream counts in.
        memory: what its requests count in.
    """

    def __init__(self, memory: RequestMemory | None = None) -> None:
        self.now = 0.0
        self.shared = Shared()
        self.memory = memory or RequestMemory(100 * MIB)
        self.line = Line(self.shared)
        self.connection = Connection(
            cast(
                "Any",
                SimpleNamespace(
                    scheduler=FairScheduler(replace(OS, monotonic_s=lambda: self.now)), requests=RequestCounters()
                ),
            ),
            self.line,
            advertised=Endpoint(name="X", host="h", port=1),
            max_request_bytes=100 * MIB,
            scratch=scratch_buffer(),
            memory=self.memory,
            on_close=lambda _: None,
            warn_about_peer=lambda _, reason: None,
        )
        self.answers: list[Reply | list[Piece]] = []
        self.connection._dispatch = cast("Any", lambda frame: self.answers.pop(0))

    def ask(self, answer: Reply | list[Piece], size: int = 10) -> None:
        """A request of so many bytes comes, which is answered like this."""
        self.answers.append(answer)
        self.receive(size.to_bytes(4, "big") + bytes(size))

    def receive(self, data: bytes) -> None:
        """Bytes of requests come."""
        while data:
            buffer = self.connection.buffer()
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            del buffer
            self.connection.received(count)
            data = data[count:]


def reply(*, pipelined: bool) -> tuple[Reply, PendingResponse]:
    """An answer that is not there, and what completes it."""
    pending = PendingResponse()
    return Reply(cast("Any", SimpleNamespace(pipelined=pipelined)), 1, pending), pending


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "later"])
async def test_answers_that_wait_behind_another_are_counted(*, at_once: bool) -> None:
    """Five megabytes are there, behind an answer that is not: they count until they are gone."""
    bench = Bench()
    first, produced = reply(pipelined=True)
    bench.ask(first)
    large = [bytes(5 * MIB)]
    if at_once:
        bench.ask(cast("Any", large))
    else:
        second, made = reply(pipelined=False)
        bench.ask(second)
        made.complete(large)
        await asyncio.sleep(0)
    assert bench.shared.memory.used == 5 * MIB
    produced.complete([b"first"])
    await asyncio.sleep(0)
    assert bench.line.written == 5 * MIB + 5
    assert bench.shared.memory.used == 0


async def test_a_lone_answer_is_written_in_the_same_turn() -> None:
    """With others before it, behind it or asked for meanwhile, it keeps its place among them."""
    bench = Bench()
    first, fetched = reply(pipelined=True)
    bench.ask(first)
    fetched.complete([b"1"])
    assert bench.line.written == 1
    second, produced = reply(pipelined=True)
    third, behind = reply(pipelined=True)
    bench.ask(second)
    bench.ask(third)
    behind.complete([b"3"])
    produced.complete([b"2"])
    assert bench.line.written == 1
    await asyncio.sleep(0)
    assert bench.line.written == 3


async def test_answers_beyond_a_round_of_turns_are_written_in_the_next() -> None:
    """Thousands of waiting fetches may be answered at once, each by itself."""
    bench = Bench()
    lone, fetched = reply(pipelined=True)
    bench.ask(lone)
    bench.now += 1.0
    fetched.complete([b"1"])
    assert bench.line.written == 0
    await asyncio.sleep(0)
    assert bench.line.written == 1


async def test_an_answer_that_is_there_when_its_request_was_handled_waits_for_those_before_it() -> None:
    """The first one is gathered for one write with what follows; the second was completed by its own request."""
    bench = Bench()
    done, made = reply(pipelined=True)
    made.complete([b"second"])
    bench.answers = [[b"first"], done]
    bench.receive(2 * ((10).to_bytes(4, "big") + bytes(10)))
    assert bench.line.sent == [b"first"]
    await asyncio.sleep(0)
    assert bench.line.sent == [b"first", b"second"]


async def test_an_answer_for_a_client_that_was_given_up_is_not_written() -> None:
    bench = Bench()
    late, made = reply(pipelined=True)
    bench.ask(late)
    bench.connection.give_up()
    made.complete([b"late"])
    await asyncio.sleep(0)
    assert bench.line.written == 0


async def test_answers_of_a_client_that_is_gone_are_let_go() -> None:
    """They wait for no other."""
    bench = Bench()
    first, _ = reply(pipelined=True)
    second, made = reply(pipelined=False)
    bench.ask(first)
    bench.ask(second)
    bench.line.abort()
    bench.connection.lost()
    made.complete([bytes(5 * MIB)])
    await asyncio.sleep(0)
    assert list(bench.connection._answers) == [first]
    assert bench.shared.memory.used == 0


async def test_a_request_that_is_worked_on_counts_until_it_is_let_go() -> None:
    """Batches wait for their coordinator: the connection is read no further than some megabytes, and on when they are in their logs."""
    bench = Bench()
    waiting = []
    while bench.line.reading:
        answer, pending = reply(pipelined=True)
        pending.needs_request = True
        waiting.append(pending)
        bench.ask(answer, MIB)
    assert len(waiting) * MIB == REQUEST_BYTES_WORKED_MAX
    assert bench.memory.small.used + bench.memory.large.used == len(waiting) * MIB
    waiting[0].release_request()
    assert bench.line.reading, "its answer may wait for much longer"
    for pending in waiting[1:]:
        pending.release_request()
    assert bench.memory.small.used + bench.memory.large.used == 0


async def test_who_waits_for_memory_is_read_from_when_a_request_was_worked_on() -> None:
    """Another connection finds no room while the first one's request is at work, and goes on when it is not."""
    memory = RequestMemory(3 * MIB)
    first, second, third = Bench(memory), Bench(memory), Bench(memory)
    pendings = []
    for bench in (first, second, third):
        answer, pending = reply(pipelined=True)
        pending.needs_request = True
        pendings.append(pending)
        bench.ask(answer, MIB)
    assert [bench.line.reading for bench in (first, second, third)] == [True, False, False]
    pendings[0].release_request()
    assert [bench.line.reading for bench in (first, second, third)] == [True, True, False]
    pendings[1].release_request()
    assert third.line.reading
