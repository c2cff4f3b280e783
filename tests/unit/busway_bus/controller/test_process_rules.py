"""A broker is the process that registered last, whatever its predecessors send."""

from tests.unit.busway_bus.controller.process_model import run


def test_processes_in_random_order_follow_the_rules() -> None:
    """Twenty seeds, in which many requests of replaced processes are refused."""
    assert sum(run(seed).refused for seed in range(20)) > 100
