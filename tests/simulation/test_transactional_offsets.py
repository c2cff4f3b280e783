"""Offsets within transactions under crashes and power cuts of whole nodes, at every step: all of a transaction or nothing, and what was
answered is so after the next start."""

import asyncio
from dataclasses import dataclass, field

import pytest

from busway_bus.testing.world import World
from busway_protocol.messages.groups_classic import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.integration.broker.groups_probe import Run
from tests.integration.broker.transactional_offsets_scenarios import Producer, settled

PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
ROUNDS = 8


@dataclass
class Progress:
    """Progress of a client, as the client knows it.

    Attributes:
        committed: the last offset whose transaction was said to be committed.
        asked: all offsets whose transaction was asked to be committed; none of others may ever be seen.
    """

    committed: int = -1
    asked: set[int] = field(default_factory=lambda: {-1})


async def work(bootstrap_servers: str, first: int, progress: Progress) -> None:
    """Transactions that commit one offset in two partitions each, every third of which is aborted."""
    host, _, port = bootstrap_servers.rpartition(":")
    run = Run(host, int(port))
    try:
        await run.prepare()
        producer = Producer(run, "x")
        await producer.init()
        for offset in range(first, first + 6):
            await producer.commit("g", partitions=[0, 1], offset=offset)
            committed = offset % 3 != 0
            if committed:
                progress.asked.add(offset)
            await producer.end(committed=committed)
            assert run.log[-1][1][0] == "NONE"
            if committed:
                progress.committed = offset
    finally:
        run.close()


async def look(bootstrap_servers: str) -> tuple[list[int], list[int]]:
    """The offsets of both partitions, at once and when nothing is undecided: the new owner of the id ends what was open."""
    host, _, port = bootstrap_servers.rpartition(":")
    run = Run(host, int(port))
    try:
        await run.prepare()
        early = await offsets(run)
        await Producer(run, "x").init()
        await settled(run, "g")
        return early, await offsets(run)
    finally:
        run.close()


async def offsets(run: Run) -> list[int]:
    """What is in force."""
    topics = [OffsetFetchRequestTopics(name="read", partition_indexes=[0, 1])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    answer = await run.admin.request(request, at_most=9)
    return [partition.committed_offset for partition in answer.groups[0].topics[0].partitions]


async def churn(world: World) -> None:
    """Transactions that are cut off somewhere, a start, and a look, again and again."""
    node = world.node("n1", PROPERTIES)
    progress = Progress()
    chance = world.chance("churn")
    for number in range(ROUNDS):
        await node.start()
        (node.crash if chance.randrange(2) else node.power_cut)(at_step=chance.randrange(90))
        client = world.process(f"client{number}")
        working = client.start(work, node.bootstrap_servers, 10 * number, progress)
        while node.running and not working.done():
            await world.sleep(0.05)
        client.crash()
        await asyncio.gather(working, return_exceptions=True)
        if node.running:
            node.crash()
        await node.start()
        early, late = await world.process(f"look{number}").run(look, node.bootstrap_servers)
        for seen in (early, late):
            assert seen[0] == seen[1], "all of a transaction or nothing"
            assert seen[0] in progress.asked, "an aborted one is never in force"
        assert late[0] >= progress.committed, "what was told is so"
        assert late[0] >= early[0]
        progress.committed = late[0]
        await node.stop()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_transaction_is_all_or_nothing_wherever_it_was_cut_off(seed: int) -> None:
    """Nodes killed, or without power, at a step of the disk."""
    World(seed).run(churn)
