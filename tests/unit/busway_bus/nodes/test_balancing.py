"""Periodic elections: in their intervals, by the leader only, and again at once while more is due."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from busway_bus.controller.elections import BalanceLeaders, ElectMissingLeaders
from busway_bus.kernel.config import BrokerConfig
from busway_bus.nodes.balancing import elect_periodically
from busway_bus.testing.world import World
from busway_protocol.errors import ErrorCode, KafkaError

MINUTES = 60


class Recorder:
    """A controller that notes when a command came, and answers with `reply`."""

    def __init__(self, world: World, reply: Callable[[Any], bool]) -> None:
        self._world, self._reply, self._begun = world, reply, world.now
        self.requests: list[tuple[int, str]] = []

    async def request(self, command: Any, context: Any) -> bool:
        self.requests.append((round((self._world.now - self._begun) / MINUTES), type(command).__name__))
        return self._reply(command)


def requests(
    reply: Callable[[Any], bool], *, minutes: int = 11, leading: bool = True, **config: str
) -> list[tuple[int, str]]:
    """The requests within some minutes, each with its minute."""

    async def workload(world: World) -> list[tuple[int, str]]:
        recorder = Recorder(world, reply)
        metadata: Any = SimpleNamespace(writer=SimpleNamespace(leading=leading))
        controller: Any = recorder
        task = asyncio.ensure_future(elect_periodically(controller, metadata, BrokerConfig.defaults(**config)))
        await asyncio.sleep(minutes * MINUTES)
        task.cancel()
        await asyncio.wait([task])
        return recorder.requests

    result: list[tuple[int, str]] = World().run(workload)
    return result


def test_each_election_has_its_interval() -> None:
    """Five minutes by default; a node that does not lead requests none, and balancing can be turned off."""
    assert sorted(requests(lambda command: False)) == [
        (5, "BalanceLeaders"),
        (5, "ElectMissingLeaders"),
        (10, "BalanceLeaders"),
        (10, "ElectMissingLeaders"),
    ]
    assert requests(lambda command: False, leading=False) == []
    often = requests(
        lambda command: False, auto_leader_rebalance_enable="false", unclean_leader_election_interval_ms="240000"
    )
    assert often == [(4, "ElectMissingLeaders"), (8, "ElectMissingLeaders")]


def test_more_is_elected_at_once_and_errors_wait_for_the_next_time() -> None:
    """Another controller has it, or the disk fails."""
    left = [True, True, False, False]
    asked = requests(lambda command: isinstance(command, BalanceLeaders) and left.pop(0), minutes=6)
    assert [name for _, name in sorted(asked)] == ["BalanceLeaders"] * 3 + ["ElectMissingLeaders"]

    def refused(command: Any) -> bool:
        moved = isinstance(command, ElectMissingLeaders)
        raise KafkaError(ErrorCode.NOT_CONTROLLER if moved else ErrorCode.KAFKA_STORAGE_ERROR)

    assert len(requests(refused)) == 4
