"""Whole nodes of a cluster under seeds: nothing acknowledged is lost, and all works again when the faults are over."""

import asyncio
from pathlib import Path

import pytest

from busway_bus.testing.simulated_nodes import simulated_nodes, start_nodes
from busway_bus.testing.world import World
from tests.simulation.three_nodes.nodes import driver_of
from tests.simulation.three_nodes.plan import KINDS, ClusterPlan, draw
from tests.simulation.three_nodes.run import run_plan, run_seed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_few_seeds(seed: int) -> None:
    """No check fails; `make three-nodes` runs fresh seeds."""
    outcome = run_seed(seed)
    assert outcome.counts["acknowledged"]
    assert outcome.counts["committed batches"]


@pytest.mark.slow
def test_plans_have_every_fault_and_load() -> None:
    """Few seeds draw all kinds of faults, of clients and of clusters."""
    plans = [draw(seed) for seed in range(100)]
    assert {fault.kind for plan in plans for fault in plan.faults} == set(KINDS)
    assert {kind for plan in plans for kind in plan.load} == {"writer", "reader", "copier", "group"}
    assert {len(plan.roles) for plan in plans} == {3, 4, 5}


@pytest.mark.slow
def test_what_failed_once_fails_no_more() -> None:
    """Each saved plan failed before the code was corrected."""
    for case in sorted((Path(__file__).parent / "cases").glob("*.json")):
        run_plan(ClusterPlan.from_json(case.read_text()))


@pytest.mark.slow
def test_a_seed_is_always_the_same_run() -> None:
    """A plan has the same history each time, and as text."""
    plan = draw(1)
    assert ClusterPlan.from_json(plan.to_json()) == plan
    assert run_plan(plan).digest == run_plan(plan).digest


@pytest.mark.slow
def test_a_node_whose_disk_fails_while_it_joins_does_not_wait_for_ever() -> None:
    """Its start fails with the disk's error: it can neither vote nor follow the metadata."""

    async def workload(world: World) -> None:
        nodes = simulated_nodes(world, ["n1", "n2", "n3"])
        await start_nodes(nodes)
        node = nodes[2]
        node.power_cut()
        starting = asyncio.ensure_future(node.start())
        while node.node is None or driver_of(node) is None or driver_of(node).leader_id < 0:
            await world.sleep(0.001)
        failed = node.node.failed
        node.disk.failing_syncs = True
        while not failed.is_set():
            await world.sleep(0.001)
        node.disk.failing_syncs = False
        with pytest.raises(OSError, match="failed while the node joined"):
            await asyncio.wait_for(starting, 60)
        await node.start()

    World(1).run(workload)
