"""A broker that loses its power says nothing: who waits for its answer finds out without a notification."""

import asyncio

import pytest

import busway
from busway.admin.admin import Admin
from busway.admin.new_topic import NewTopic
from busway_bus.testing.world import SimNode, World

pytestmark = pytest.mark.slow
TOPIC = "t"
SESSION_S = 45.0
NOTICED_S = 30.0


class Holding(busway.RebalanceListener):
    """Gives nothing up, so that a rebalance lasts."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def on_partitions_revoked(self, revoked: tuple[busway.TopicPartition, ...]) -> None:
        self.asked.set()
        await asyncio.get_running_loop().create_future()


def consumer(node: SimNode, listener: busway.RebalanceListener | None = None) -> busway.Consumer:
    """A member of the group."""
    return busway.Consumer(
        TOPIC,
        bootstrap_servers=node.bootstrap_servers,
        group_id="g",
        partition_assignment_strategy=["range"],
        listener=listener,
    )


async def read(member: busway.Consumer, shared: "asyncio.Future[None]") -> None:
    """Poll for good; `shared` is done when something is assigned."""
    async with member:
        while True:
            await member.getmany(timeout_ms=500)
            if member.assignment() and not shared.done():
                shared.set_result(None)


@pytest.mark.parametrize("away_s", [1.0, 35.0])
def test_a_member_that_waits_for_a_rebalance_joins_again_when_its_broker_has_power_again(away_s: float) -> None:
    """It does not wait for the answer to a request that no member has: that would be as long as a rebalance may take, five minutes."""

    async def workload(world: World) -> None:
        node = world.node("broker")
        await node.start()
        async with Admin(node.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(TOPIC, 2)])
        first, second, holding = world.process("first"), world.process("second"), Holding()
        has, gets = (asyncio.get_running_loop().create_future() for _ in range(2))
        first.start(read, consumer(node, holding), has).add_done_callback(lambda future: future.exception())
        await has
        second.start(read, consumer(node), gets).add_done_callback(lambda future: future.exception())
        await holding.asked.wait()
        node.power_cut()
        first.crash()
        await world.sleep(away_s)
        await node.start()
        async with asyncio.timeout(SESSION_S + NOTICED_S):
            await gets

    World(1).run(workload)
