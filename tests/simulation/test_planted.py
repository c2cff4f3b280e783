"""Bugs put in on purpose are found; `planted` says how soon."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.checks import Anomaly
from tests.simulation.explore import Rotten, check_plant, searches
from tests.simulation.planted import PLANTED
from tests.simulation.planting import Moved, Planted, planted

SECONDS_MAX = 240.0


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Planted) -> None:
    """What it changes is where it was, and is as before afterwards."""
    from tests.simulation.planting import _place

    before = [vars(owner)[name] for owner, name in (_place(where) for where, _ in bug.changes)]
    with planted(bug):
        during = [vars(owner)[name] for owner, name in (_place(where) for where, _ in bug.changes)]
        assert during != before
        for original, replacement in zip(before, during, strict=True):
            assert calls_of(replacement) == calls_of(original, of=replacement)
    assert [vars(owner)[name] for owner, name in (_place(where) for where, _ in bug.changes)] == before


def calls_of(code: Any, of: Any = None) -> Any:
    """How code is called: whether it is awaited, and its parameters; those left out that `of` takes as `*args` or `**options`."""
    code, of = getattr(code, "__func__", code), getattr(of, "__func__", of)
    if not callable(code):
        return type(code)
    taken = inspect.signature(code if of is None else of).parameters.values()
    kinds = {parameter.kind for parameter in taken}
    absorbed = {
        parameter.kind for parameter in taken if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    }
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        absorbed.add(inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if inspect.Parameter.VAR_KEYWORD in kinds:
        absorbed |= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    parameters = [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in inspect.signature(code).parameters.values()
        if parameter.kind not in absorbed
    ]
    return inspect.iscoroutinefunction(code), parameters


def test_a_plant_that_fails_by_itself_is_an_error() -> None:
    """A traceback that ends in the planted code tells nothing about the search."""
    lines = ['  File "/x/tests/simulation/planted.py", line 1, in commit', "AttributeError: no such"]
    with pytest.raises(Rotten, match="no such"):
        check_plant("a bug", [Anomaly("mistake", "\n".join(lines))])
    lines.insert(1, '  File "/x/bus/busway_bus/node.py", line 1, in start')
    check_plant("a bug", [Anomaly("mistake", "\n".join(lines))])


def test_code_that_has_moved_is_an_error() -> None:
    """A bug that is planted nowhere would never be found."""
    with pytest.raises(Moved, match="not there any more"), planted(Planted("x", "x", (("json:no_such", str),))):
        pass


def test_every_bug_has_its_row() -> None:
    """planted.md lists each bug by its name, and no other."""
    table = (Path(__file__).parent / "planted.md").read_text()
    rows = re.findall(r"^\| ([^|]+?) \| \d", table, re.MULTILINE)
    assert sorted(rows) == sorted(bug.name for bug in PLANTED)


@pytest.mark.hostile
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Planted) -> None:
    """Within four minutes of CPU."""
    (search,) = searches((bug,), seconds=SECONDS_MAX, jobs=1)
    assert search.anomaly
