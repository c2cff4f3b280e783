"""Planted bugs of clusters are found, each within its bound of seeds, and reported as what they are."""

import re
from itertools import groupby
from pathlib import Path

import pytest

from tests.simulation.cluster_engines import ClusterBug, holds, search
from tests.simulation.planted_cluster import CLUSTER_BUGS
from tests.simulation.planted_controller import PLANTED as OF_CONTROLLER
from tests.simulation.planted_coordinators import PLANTED as OF_COORDINATORS
from tests.simulation.planted_replication import PLANTED as OF_REPLICATION
from tests.simulation.quorum.planted import PLANTED as OF_CONTROLLERS
from tests.unit.busway_bus.quorum.planted import PLANTED as OF_QUORUM

BUGS = [
    pytest.param(bug, id=bug.name, marks=[pytest.mark.hostile, pytest.mark.timeout(900)] if bug.dear else [])
    for bug in CLUSTER_BUGS
]
RUNS = sorted({(bug.engine, bug.bug.about) for bug in CLUSTER_BUGS})


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_of_a_cluster_is_found(bug: ClusterBug) -> None:
    failure = search(bug).failure
    assert failure, f"{bug.seeds} seeds do not find: {bug.bug.story}"
    assert bug.anomaly in failure


@pytest.mark.hostile
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("engine", "about"), RUNS)
def test_the_same_seeds_pass_without_a_bug(engine: str, about: str) -> None:
    bugs = [bug for bug in CLUSTER_BUGS if (bug.engine, bug.bug.about) == (engine, about)]
    holds(bugs[0], max(bug.seeds for bug in bugs))


def test_every_bug_is_in_the_list_once() -> None:
    planted = [*OF_CONTROLLER, *OF_COORDINATORS, *OF_REPLICATION, *OF_CONTROLLERS, *OF_QUORUM]
    assert sorted(bug.name for bug in planted) == sorted(bug.name for bug in CLUSTER_BUGS)
    assert [len(list(same)) for _, same in groupby(sorted(bug.name for bug in planted))] == [1] * len(planted)


def test_every_bug_of_a_cluster_has_its_row() -> None:
    """planted.md lists each by its name, with its engine."""
    _, _, section = (Path(__file__).parent / "planted.md").read_text().partition("## Clusters")
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| \d+ \| \d+ \|", section, re.MULTILINE)
    assert rows == [(bug.name, bug.where) for bug in CLUSTER_BUGS]
