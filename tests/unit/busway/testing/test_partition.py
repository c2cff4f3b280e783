"""Which directions a partition of a test's cluster cuts."""

import pytest

from busway.testing.partition import Partition, directions_between

NODES = (1, 2, 3)


def test_one_group_is_cut_from_all_other_nodes() -> None:
    """Both ways; clients reach everybody."""
    assert set(directions_between(NODES, [1])) == {(1, 2), (2, 1), (1, 3), (3, 1)}
    assert directions_between(NODES, [[1]]) == directions_between(NODES, [1])


def test_several_groups_are_cut_from_each_other() -> None:
    """Clients are in the group that names them; node 3 is in none and reaches all."""
    assert set(directions_between(NODES, [1, (2, "clients")])) == {(1, 2), (2, 1), (1, 0), (0, 1)}
    assert len(directions_between(NODES, [1, 2, 3])) == 6


def test_one_way_cuts_what_the_first_group_sends() -> None:
    assert directions_between(NODES, ["clients", 3], one_way=True) == [(0, 3)]
    assert directions_between(NODES, [2], one_way=True) == [(2, 1), (2, 3)]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([4], r'4 is no member of this cluster: give 1, 2, 3 or "clients"'),
        (["client"], "'client' is no member"),
        ([1, [1, 2]], "a member is in two groups"),
        ([[1, 2, 3]], r"partition\(\[1, 2, 3\]\) cuts nothing"),
        ([], "cuts nothing"),
    ],
)
def test_what_cuts_nothing_is_refused(groups: list[object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        directions_between(NODES, groups)  # type: ignore[arg-type]


async def test_a_partition_is_healed_once() -> None:
    """By itself or at the end of its block."""
    calls: list[str] = []

    class Network:
        async def cut(self, directions: object) -> None:
            calls.append("cut")

        async def heal(self, directions: object = None) -> None:
            calls.append("heal")

    async with Partition(Network(), [(1, 2)]) as partition:
        assert calls == ["cut"]
        await partition.heal()
    assert calls == ["cut", "heal"]
    assert await partition is partition
    assert calls == ["cut", "heal", "cut"]
