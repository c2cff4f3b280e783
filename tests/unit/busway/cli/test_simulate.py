"""`busway simulate`: what it runs, and how it refuses what it cannot."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from busway.cli import simulate as command
from busway.cli.output import CommandFailed
from busway.testing.simulation.simulation import Simulation, SimulationFailed

MODULE = """
from busway import App
from busway.testing import Simulation
app = App("shop")
other = App("other")
simulation = Simulation("simulated_cli.service:app")
number = 5
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A service with its simulation, in the current directory of a process whose hashes are fixed."""
    (tmp_path / "simulated_cli").mkdir()
    (tmp_path / "simulated_cli" / "service.py").write_text(MODULE)
    (tmp_path / "simulated_cli" / "broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    yield
    for name in [name for name in sys.modules if name.startswith("simulated_cli")]:
        del sys.modules[name]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The arguments of each run."""
    calls: list[tuple[Any, ...]] = []

    def run(self: Simulation, seeds: range, **options: Any) -> int:
        calls.append((self.target, seeds, options))
        return len(seeds)

    monkeypatch.setattr(Simulation, "run", run)
    return calls


def simulate(target: str, **options: Any) -> None:
    """Call the command with its defaults."""
    defaults = {"seeds": 1000, "first": 0, "seed": None, "time_s": None, "nodes": None, "shrink": True}
    command.simulate(target, **{**defaults, **options})


@pytest.mark.parametrize("target", ["simulated_cli.service:simulation", "simulated_cli.service:app"])
def test_a_simulation_or_the_app_that_has_one(
    target: str, runs: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The seeds are printed, so that a run can be repeated."""
    simulate(target, seeds=20, first=100)
    options = {"seed": None, "shrink": True, "time_s": None, "nodes": None}
    assert runs == [("simulated_cli.service:app", range(100, 120), options)]
    assert capsys.readouterr().out == f"{target}: 20 histories hold, seeds 100 to 119\n"


def test_one_seed(runs: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str]) -> None:
    """As a failure names it."""
    simulate("simulated_cli.service:simulation", seed="17:0,4", seeds=1)
    assert runs[0][2]["seed"] == "17:0,4"
    assert "seed 17:0,4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "options", "problem"),
    [
        ("simulated_cli.service:simulation", {"seeds": 0}, "--seeds 0: give 1 or more"),
        ("simulated_cli.service:simulation", {"seed": "x"}, "--seed "),
        (
            "simulated_cli.missing:app",
            {},
            "there is no module simulated_cli.missing; run this where it can be imported",
        ),
        ("simulated_cli.service:missing", {}, "simulated_cli.service has no missing"),
        ("simulated_cli.service:number", {}, "is not a Simulation, and its module has none of it"),
        ("simulated_cli.service:other", {}, "is not a Simulation, and its module has none of it"),
        ("simulated_cli.broken:app", {}, "cannot be imported: ZeroDivisionError: division by zero"),
        ("simulated_cli.service", {}, "give MODULE:NAME"),
    ],
)
def test_refusals(target: str, options: dict[str, Any], problem: str) -> None:
    """One line that names the thing and the remedy."""
    with pytest.raises(CommandFailed) as refused:
        simulate(target, **options)
    assert problem in str(refused.value)


def test_a_failure_ends_with_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its text goes to standard output."""

    def fail(self: Simulation, seeds: range, **options: Any) -> int:
        raise SimulationFailed("a record was lost", "17", None)  # type: ignore[arg-type]

    monkeypatch.setattr(Simulation, "run", fail)
    with pytest.raises(typer.Exit) as ended:
        simulate("simulated_cli.service:simulation")
    assert ended.value.exit_code == 1
    assert capsys.readouterr().out == "a record was lost\n"
