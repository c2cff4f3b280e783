"""Tests are the same each time: what they draw comes from a seed, and Hypothesis's examples from a profile."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.seeds import seed
from tests.tidy.test_house import ROOT, tracked

UNSEEDED = {
    "tests/simulation/__main__.py": "hunts: new seeds each time, and prints the first",
    "tests/simulation/three_nodes/__main__.py": "the same for a cluster",
    "tests/integration/testing/test_simulation.py": "a service that draws, which the simulation seeds",
}
"""Modules that may draw without a seed, and why."""


def unseeded(module: ast.AST) -> list[str]:
    """Return what a module draws from that no seed decides: `random`'s own functions, `SystemRandom`, `Random()`, `os.urandom`, `secrets`."""
    calls = []
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Name("Random") | ast.Attribute(ast.Name("random"), "Random"), args=[], keywords=[]):
                calls.append("Random()")
            case ast.Attribute(ast.Name("random"), name) if name not in {"Random", "seed"}:
                calls.append(f"random.{name}")
            case ast.Attribute(ast.Name("os"), "urandom") | ast.Attribute(ast.Name("secrets")):
                calls.append(ast.unparse(node))
            case ast.ImportFrom("random" | "secrets" | "os") as imported:
                drawing = (
                    {"urandom"} if imported.module == "os" else {alias.name for alias in imported.names} - {"Random"}
                )
                calls += [f"{imported.module}.{alias.name}" for alias in imported.names if alias.name in drawing]
    return calls


@pytest.mark.slow
def test_tests_draw_from_a_seed() -> None:
    """Take `random.Random(seed(1))`, with `seed` of `tests/support/seeds.py`."""
    drawing_files = {
        name: what
        for path in tracked()
        if path.suffix == ".py"
        and "tests" in path.relative_to(ROOT).parts
        and (name := str(path.relative_to(ROOT))) not in UNSEEDED
        and any(word in (text := path.read_text()) for word in ("andom", "secrets"))
        and (what := unseeded(ast.parse(text)))
    }
    assert not drawing_files


@pytest.mark.parametrize(
    "line",
    [
        "random.randrange(2**32)",
        "random.SystemRandom().randrange(3)",
        "random.Random()",
        "Random()",
        "os.urandom(3)",
        "secrets.token_hex()",
        "from random import choice",
        "from os import environ, urandom",
    ],
)
def test_what_no_seed_decides_is_found(line: str) -> None:
    """Each of these once."""
    assert unseeded(ast.parse(line))


def test_what_a_seed_decides_is_not() -> None:
    """Nor is what has a seed's name."""
    assert not unseeded(
        ast.parse("from random import Random\nfrom os import environ\nrandom.Random(1).random()\nRandom(2)")
    )


def test_a_seed_is_the_tests_own_or_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is printed; what is no integer is named."""
    monkeypatch.delenv("SEED", raising=False)
    assert seed(7) == 7
    monkeypatch.setenv("SEED", "12")
    assert seed(7) == 12
    assert capsys.readouterr().out == "SEED=7\nSEED=12\n"
    monkeypatch.setenv("SEED", "x")
    with pytest.raises(ValueError, match="SEED=x: not an integer; unset it for the test's own seed, 7"):
        seed(7)


DRAWS = """
import importlib, sys
from hypothesis import given, settings, strategies as st

sys.path.insert(0, {folder!r})
drawn = []

@settings(max_examples=300)
@given(st.integers(0, 10**9))
def test_draw(number):
    drawn.append(number)

def test_show():
    print("drawn", drawn)

importlib.import_module({module!r})
"""


def drawn(tmp_path: Path, profile: str, module: str = "json") -> str:
    """Return the output of a run that draws 300 numbers, with a module imported beside it."""
    file = tmp_path / "test_draws.py"
    file.write_text(DRAWS.format(folder=str(tmp_path), module=module))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-s", "-q", "-n", "0", str(file)],
        cwd=ROOT,
        env={**os.environ, "BUSWAY_HYPOTHESIS": profile},
        capture_output=True,
        text=True,
        check=False,
    )
    return next((line for line in done.stdout.splitlines() if "drawn" in line), done.stdout + done.stderr)


@pytest.mark.variant
@pytest.mark.slow
def test_the_gate_draws_the_same_examples_whatever_else_is_imported(tmp_path: Path) -> None:
    """Hypothesis also draws constants of the modules that it finds, and other ones in the profile `fresh`."""
    (tmp_path / "constants.py").write_text(f"NUMBERS = {list(range(10**6, 10**6 + 100))}")
    same = drawn(tmp_path, "gate")
    assert "drawn [" in same
    assert drawn(tmp_path, "", "constants") == same
    other = drawn(tmp_path, "fresh")
    assert "drawn [" in other
    assert other != same


@pytest.mark.slow
def test_an_unknown_profile_is_a_usage_error(tmp_path: Path) -> None:
    """It names the ones there are."""
    assert "ERROR: BUSWAY_HYPOTHESIS=nope: there is no such profile; use gate or fresh" in drawn(tmp_path, "nope")
