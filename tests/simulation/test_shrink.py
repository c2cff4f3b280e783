"""Shrinking leaves what a failure needs and nothing else; a plan survives being written down."""

from tests.simulation.drawing import draw
from tests.simulation.plan import Plan
from tests.simulation.shrink import Shrinking


def test_a_plan_shrinks_to_what_its_failure_needs() -> None:
    """A failure that needs one fault and three sends of one producer keeps these alone."""
    plan = next(
        plan
        for plan in map(draw, range(100))
        if any(fault.kind == "power cut" for fault in plan.faults) and len(plan.topics) > 2
    )

    def fails(candidate: Plan) -> bool:
        sends = sum(client.operations for client in candidate.clients if client.name == "producer1")
        return sends >= 3 and any(fault.kind == "power cut" for fault in candidate.faults)

    tried: list[Plan] = []
    small = Shrinking(fails, tried.append).run(plan)
    assert small.size == (1, 1, 3)
    assert [client.name for client in small.clients] == ["producer1"]
    assert len(small.topics) == 1
    assert tried[-1] == small


def test_a_plan_is_the_same_after_it_was_written_down() -> None:
    """Cases are kept as text; what a seed draws is always the same."""
    for seed in range(20):
        plan = draw(seed)
        assert Plan.from_json(plan.to_json()) == plan == draw(seed)


def test_seeds_differ_in_the_faults_that_exist() -> None:
    """Some runs have none of a kind at all, some have hardly anything else."""
    plans = [draw(seed) for seed in range(200)]
    kinds = [{fault.kind for fault in plan.faults} for plan in plans]
    for kind in ("crash", "power cut", "freeze", "cut", "damage"):
        assert 15 < sum(kind in drawn for drawn in kinds) < 160
    assert any(not drawn for drawn in kinds)
