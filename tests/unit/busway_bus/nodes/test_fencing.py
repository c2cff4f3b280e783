"""Fencing of brokers whose processes are gone, over the simulated network."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.busway_bus.nodes.test_channels import image_of, nodes, run

from busway_bus.nodes import fencing as subject
from busway_bus.nodes.fencing import Fencing
from busway_bus.testing.world import World


class Connected:
    """The connection of a broker, as handlers see it."""

    gone = False
    was_reset = False
    when_closed: Callable[[bool], None] | None = None

    def close(self, *, by_client: bool = True, was_reset: bool = False) -> None:
        self.was_reset = was_reset
        assert self.when_closed is not None
        self.when_closed(by_client)


class Leading:
    """A controller that leads and notes what it fences, over brokers by name: `b1="host"`."""

    leader_id = 1

    def __init__(self, **hosts: str) -> None:
        self.fenced: set[int] = set()
        self.metadata = SimpleNamespace(leadership=3, image=image_of(**hosts), writer=SimpleNamespace(leading=True))
        self.fencing = Fencing(cast("Any", self), cast("Any", self.metadata), session_ms=9_000, listener="PLAINTEXT")

    async def request(self, command: Any, context: Any) -> Any:
        self.fenced.add(command.node_id)
        return True

    def leads(self, leadership: int) -> None:
        """Begin a leadership, or end it with -1."""
        self.metadata.leadership = leadership
        self.metadata.writer.leading = leadership >= 0

    def heartbeat(self, node_id: int) -> Connected:
        """Take a broker's heartbeat on a new connection."""
        connection = Connected()
        self.fencing.received(cast("Any", connection), node_id, 7)
        return connection

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        watching = asyncio.ensure_future(self.fencing.watch_connections())
        try:
            yield
        finally:
            watching.cancel()
            self.fencing.close()


@contextlib.contextmanager
def without_name(world: World, name: str) -> Iterator[None]:
    """Let a host's name be unknown; what runs there goes on."""
    host = world.loop.hosts.pop(name)
    try:
        yield
    finally:
        world.loop.hosts[name] = host


def test_a_broker_whose_process_is_gone_is_fenced_at_once() -> None:
    """One that runs is not, whatever becomes of its connections; nor does a node fence that does not lead."""

    async def workload(world: World) -> None:
        first, _ = await nodes(world, "a", "b")
        controller = Leading(b1="a", b2="b")
        first_connection = controller.heartbeat(1)
        controller.heartbeat(2).close()
        await world.sleep(1)
        assert not controller.fenced
        first.crash()
        controller.metadata.writer.leading = False
        first_connection.close()
        await world.sleep(1)
        assert not controller.fenced
        controller.metadata.writer.leading = True
        with controller.watching():
            await world.sleep(1)
            assert controller.fenced == {1}

    run(workload)


def test_a_broker_whose_name_vanished_with_its_connection_is_fenced_at_once() -> None:
    """As of a killed container. A name that never had an address shows nothing, nor does the end by a reset."""

    async def workload(world: World) -> None:
        first, second = await nodes(world, "a", "b")
        controller = Leading(b1="a", b2="b", b3="unknown", b4="unreachable")
        with controller.watching():
            connections = [controller.heartbeat(node_id) for node_id in (1, 2, 3)]
            await world.sleep(1)
            assert not controller.fenced
            first.crash()
            second.crash()
            with without_name(world, "a"), without_name(world, "b"):
                connections[0].close()
                connections[1].close(was_reset=True)
                connections[2].close()
                await world.sleep(2)
                assert controller.fenced == {1}

    run(workload)


def test_a_live_broker_without_a_name_for_a_moment_is_not_fenced() -> None:
    """It closed the connection after a heartbeat that took too long, and is back after its pause."""

    async def workload(world: World) -> None:
        await nodes(world, "a")
        controller = Leading(b1="a")
        with controller.watching():
            connection = controller.heartbeat(1)
            await world.sleep(1)
            with without_name(world, "a"):
                connection.close()
                await world.sleep(0.06)
                controller.heartbeat(1)
                await world.sleep(2)
            assert not controller.fenced

    run(workload)


@pytest.mark.parametrize("is_decided_before", [False, True])
def test_a_live_broker_whose_heartbeat_is_decided_slowly_is_not_fenced(is_decided_before: bool) -> None:
    """It closed its connection before the answer, and waits on the next one. Without a name the probe shows nothing of it."""

    async def workload(world: World) -> None:
        (node,) = await nodes(world, "a")
        controller = Leading(b1="a")
        with controller.watching():
            connection = controller.heartbeat(1)
            await world.sleep(1)
            again = Connected()
            heartbeat = (cast("Any", again), 1, 7)
            with without_name(world, "a"):
                connection.close()
                await world.sleep(0.06)
                with controller.fencing.deciding(*heartbeat):
                    await world.sleep(0.06 if is_decided_before else 3)
                controller.fencing.received(*heartbeat)
                await world.sleep(1)
                assert not controller.fenced
                with controller.fencing.deciding(cast("Any", again), 1, 6):  # of an earlier start: it shows nothing
                    again.gone = True
                    node.crash()
                    again.close()
                    await world.sleep(1)
                    assert controller.fenced == {1}

    run(workload)


def test_a_broker_that_was_back_during_the_probe_of_its_name_is_not_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its next connection was reset: that shows less than the end of the one before."""

    async def workload(world: World) -> None:
        begun, ends = asyncio.Event(), asyncio.Event()

        async def no_name(*_: Any) -> bool:
            begun.set()
            await ends.wait()
            return True

        monkeypatch.setattr(subject, "is_absent", no_name)
        await nodes(world, "a")
        controller = Leading(b1="a")
        with controller.watching():
            connection = controller.heartbeat(1)
            await world.sleep(1)
            connection.close()
            await begun.wait()
            controller.heartbeat(1).close(was_reset=True)
            ends.set()
            await world.sleep(1)
            assert not controller.fenced

    run(workload)


def test_a_connection_that_ended_in_another_leadership_shows_nothing() -> None:
    """Brokers leave a node that does not lead any more, and come back with its next leadership."""

    async def workload(world: World) -> None:
        await nodes(world, "a")
        for is_lost_first in (True, False):
            controller = Leading(b1="a")
            with controller.watching():
                connection = controller.heartbeat(1)
                await world.sleep(1)
                if is_lost_first:
                    controller.leads(-1)
                connection.close()
                controller.leads(-1)
                await world.sleep(1)
                with without_name(world, "a"):
                    controller.leads(9)
                    await world.sleep(2)
                assert not controller.fenced

    run(workload)


def test_a_broker_that_is_back_before_its_probe_ends_is_not_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    async def workload(world: World) -> None:
        ends = asyncio.Event()

        async def refused(*_: Any) -> bool:
            await ends.wait()
            return True

        for sign in ("is_refused", "is_absent"):
            monkeypatch.setattr(subject, sign, refused)
        await nodes(world, "a")
        controller = Leading(b1="a")
        with controller.watching():
            controller.heartbeat(1).close()
            await world.sleep(0.01)
            controller.heartbeat(1)
            ends.set()
            await world.sleep(1)
            assert not controller.fenced

    run(workload)


def test_a_connection_that_ended_before_its_heartbeat_was_carried_out_is_none() -> None:
    """The broker's end is noticed, although nothing else will come."""

    async def workload(world: World) -> None:
        (node,) = await nodes(world, "a")
        controller = Leading(b1="a")
        node.crash()
        connection = Connected()
        connection.gone = True
        with controller.watching():
            controller.fencing.received(cast("Any", connection), 1, 7)
            await world.sleep(1)
            assert controller.fenced == {1}

    run(workload)
