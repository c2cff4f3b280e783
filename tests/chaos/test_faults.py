"""What a fault of the network cuts."""

import pytest

from tests.chaos.faults import Fault, cut_pairs


@pytest.mark.parametrize(
    ("kind", "nodes", "expected"),
    [
        ("cut off leader", 3, {(1, 2), (1, 3), (2, 1), (3, 1)}),
        ("cut what leader sends", 3, {(1, 2), (1, 3)}),
        ("cut what controller receives", 3, {(2, 1), (3, 1)}),
        ("cut all but a ring", 3, {(1, 3), (3, 1)}),
        ("cut all but a ring", 5, {(a, b) for a in range(1, 6) for b in range(1, 6) if abs(a - b) in {2, 3}}),
    ],
)
def test_cut_pairs(kind: str, nodes: int, expected: set[tuple[int, int]]) -> None:
    """Of node 1, and of nodes in a ring from 1 on."""
    fault = Fault(kind=kind, ring=tuple(range(1, nodes + 1)), partition=0, lasts_s=1, settled=True)
    assert set(cut_pairs(fault, 1)) == expected
