"""Whole nodes and clients under a seed: what failed once, a few seeds, and that a seed is always the same run.

Not here: seeds of all themes, and about share groups; the gate runs them as stages of their own.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.drawing import draw
from tests.simulation.plan import Plan
from tests.simulation.scenario import WORKLOADS, run_plan
from tests.simulation.workloads import Client
from tests.support.variants import with_variants

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))
SEEDS = range(8)
FEWER_SEEDS = range(3)
"""Of a theme that the gate's stage of seeds has often enough: these show that it has what it is about."""
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_what_failed_once_fails_no_more(case: Path) -> None:
    """Each kept plan showed an anomaly before the code was mended."""
    assert run_plan(Plan.from_json(case.read_text())).anomalies == []


@pytest.mark.slow
def test_a_few_seeds_about_transactions() -> None:
    """They show no anomaly; transactions are committed, aborted and left open in them, and passed on with offsets."""
    happened: Counter[str] = Counter()
    for seed in SEEDS:
        verdict = run_plan(draw(seed, "transactions"))
        assert verdict.anomalies == [], f"python -m tests.simulation --about transactions --seed {seed}"
        happened += verdict.counts
    # A third of what was counted, at most: a small change of the product moves everything a little.
    floors = {"transaction ok": 40, "transaction fail": 25, "transaction info": 5, "groupoffset ok": 40}
    floors |= {"committedpoll ok": 50, "converged": len(SEEDS)}
    assert {name: count for name, count in floors.items() if happened[name] < count} == {}


@pytest.mark.slow
def test_a_few_seeds_about_groups() -> None:
    """They show no anomaly; members of groups that their coordinator balances come, go, and are refused when they are too late."""
    happened: Counter[str] = Counter()
    for seed in SEEDS:
        verdict = run_plan(draw(seed, "groups"))
        assert verdict.anomalies == [], f"python -m tests.simulation --about groups --seed {seed}"
        happened += verdict.counts
    floors = {
        "consumerheartbeat ok": 60,
        "ownership ok": 12,
        "revoked ok": 5,
        "commit ok": 30,
        "commit fail": 1,
        "converged": len(SEEDS),
    }
    assert {name: count for name, count in floors.items() if happened[name] < count} == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("about", "floors"),
    [("seats", {"seat ok": 4, "revoking info": 1}), ("migration", {"consumerheartbeat ok": 15, "ownership ok": 6})],
)
def test_a_few_seeds_about_members_that_change(about: str, floors: dict[str, int]) -> None:
    """They show no anomaly; members leave for a while, or come back with the other protocol."""
    happened: Counter[str] = Counter()
    for seed in FEWER_SEEDS:
        verdict = run_plan(draw(seed, about))
        assert verdict.anomalies == [], f"python -m tests.simulation --about {about} --seed {seed}"
        happened += verdict.counts
    floors |= {"converged": len(FEWER_SEEDS)}
    assert {name: count for name, count in floors.items() if happened[name] < count} == {}


@pytest.mark.variant
@pytest.mark.slow
def test_a_few_seeds_about_services() -> None:
    """They show no anomaly; services that are exactly once are killed and stand still in them."""
    seeds, happened = range(5), Counter[str]()
    for seed in seeds:
        verdict = run_plan(draw(seed, "services"))
        assert verdict.anomalies == [], f"python -m tests.simulation --about services --seed {seed}"
        happened += verdict.counts
    floors = {"serviceread ok": 2 * len(seeds), "kill": 1, "freeze": 1, "power cut": 2, "converged": len(seeds)}
    assert {name: count for name, count in floors.items() if happened[name] < count} == {}


@pytest.mark.slow
@pytest.mark.parametrize("about", with_variants(["ends", "compaction", "durability", "levels"], gate=["levels"]))
def test_a_few_seeds_about_ends_of_transactions(about: str) -> None:
    """They show no anomaly; transactions are committed and aborted in them."""
    happened: Counter[str] = Counter()
    for seed in FEWER_SEEDS:
        verdict = run_plan(draw(seed, about))
        assert verdict.anomalies == [], f"python -m tests.simulation --about {about} --seed {seed}"
        happened += verdict.counts
    floors = {"transaction ok": 13, "transaction fail": 5, "converged": len(FEWER_SEEDS)}
    assert {name: count for name, count in floors.items() if happened[name] < count} == {}


@pytest.mark.slow
def test_a_seed_is_always_the_same_run() -> None:
    """Two runs in this process and one in another, with other hashes of strings, have the same trace; what is left over ends quietly."""
    seed = 3
    digest = run_plan(draw(seed)).digest
    assert run_plan(draw(seed)).digest == digest
    command = f"from tests.simulation.scenario import *; from tests.simulation.drawing import draw; print(run_plan(draw({seed})).digest)"
    done = subprocess.run(
        [sys.executable, "-c", command],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.split(), done.stderr) == ([digest], "")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["producer", "member"])
def test_a_workload_that_dies_of_its_own_mistake_ends_the_run(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, with its own traceback and the seed, also where others wait for what it will never do."""

    async def forgetful(client: Client) -> None:
        {}["what nobody has put there"]

    plan = next(plan for plan in map(draw, range(50)) if any(client.kind == kind for client in plan.clients))
    monkeypatch.setitem(WORKLOADS, kind, forgetful)  # type: ignore[arg-type] - a dictionary underneath
    verdict = run_plan(plan)
    anomaly = next(anomaly for anomaly in verdict.anomalies if anomaly.name == "workload")
    assert anomaly.text.startswith(f"seed {plan.seed}: the workload of {kind}")
    assert "in forgetful" in anomaly.text
    assert "KeyError: 'what nobody has put there'" in anomaly.text
    assert not [anomaly for anomaly in verdict.anomalies if anomaly.name in {"never", "stuck"}]
    assert "phase" not in verdict.counts
