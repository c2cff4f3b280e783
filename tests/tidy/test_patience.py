"""Time-outs of tests: what scales them, that it scales each test's own, and that none is written without it."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.support.patience import VARIABLE, patient, patient_ms
from tests.tidy.test_house import ROOT, tracked

from busway.testing import bus

SHOWN = {
    "tests/integration/app/test_manual_clock.py": "a handler's own, on the clock that the test moves",
    "tests/integration/client/test_power.py": "virtual time",
    "tests/integration/client/test_static_members.py": "virtual time",
    "tests/unit/busway_bus/coordinator/group_histories.py": "virtual time",
    "tests/unit/busway/app/tables/test_row_locks.py": "what is shown is that it is moved",
}
"""Files with time-outs that are no patience."""
BRIEF_S = 1.0
"""What is shorter shows that nothing happens."""


def test_patience_is_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one, unless asked for more."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert (patient(20), patient_ms(1_500)) == (20, 1_500)
    monkeypatch.setenv(VARIABLE, "2.5")
    assert (patient(20), patient_ms(1_501)) == (50, 3_753)


@pytest.mark.parametrize("text", ["", "soon", "0.5", "-1", "nan", "inf"])
def test_what_is_no_patience_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The error names the variable."""
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ValueError, match=f"{VARIABLE} is a number of at least 1"):
        patient(1)


def ran(folder: Path, factor: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Pytest with this repository's configuration, on tests that say how much time they have left."""
    (folder / "test_left.py").write_text(
        "import signal\n"
        "import pytest\n"
        "from busway.testing import bus\n"
        "@pytest.mark.timeout(1000)\n"
        "def test_of_a_mark():\n"
        "    print('mark', signal.getitimer(signal.ITIMER_REAL)[0], 'bus', *bus.TestBus.settle.__defaults__)\n"
        "def test_of_all():\n"
        "    print('all', signal.getitimer(signal.ITIMER_REAL)[0])\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "pyproject.toml",
        "--rootdir",
        str(folder),
        "-p",
        "conftest",
        "-rP",
    ]
    environment = {**os.environ, VARIABLE: factor, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *arguments, str(folder)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=patient(60), check=False,
    )  # fmt: skip


@pytest.mark.variant
@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "every"), [(("-n", "0"), 120), (("-n", "1", "--timeout", "400"), 400)])
def test_the_time_out_of_each_test_is_multiplied(tmp_path: Path, arguments: tuple[str, ...], every: float) -> None:
    """From a mark, the configuration or the command line, in the processes of xdist, too; so is what the test bus waits for."""
    done = ran(tmp_path, "3", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    words = done.stdout.split()
    marked, of_all, settles = (float(words[words.index(word) + 1]) for word in ("mark", "all", "bus"))
    assert 2 * 1000 < marked <= 3 * 1000
    assert 2 * every < of_all <= 3 * every
    assert settles == pytest.approx(3 * bus.SETTLE_S / patient(1))


@pytest.mark.slow
def test_no_test_runs_with_a_patience_that_is_none(tmp_path: Path) -> None:
    """One line says why."""
    done = ran(tmp_path, "no", "-n", "0")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"{VARIABLE} is a number of at least 1, such as 3, not 'no'" in done.stderr
    assert "Traceback" not in done.stderr


def unscaled(source: str) -> Iterator[int]:
    """The lines with a time-out that is a number: of `asyncio.timeout`, `wait_for`, or the argument `timeout`."""
    tree = ast.parse(source)
    names = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        given = [keyword.value for keyword in node.keywords if keyword.arg == "timeout"]
        match node.func:
            case ast.Attribute(value=ast.Name(id="asyncio"), attr="timeout"):
                given += node.args
            case ast.Attribute(attr="wait_for"):
                given += node.args[1:]
        if any(is_number(each, names) for each in given):
            yield node.lineno


def is_number(node: ast.expr, names: Mapping[str, ast.expr]) -> bool:
    """Whether it is a number of a second or more, or made of nothing but numbers."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value >= BRIEF_S
        case ast.BinOp(left=left, right=right):
            return is_number(left, names) and is_number(right, names)
        case ast.Name(id=name) if name in names:
            return is_number(names[name], {})
    return False


@pytest.mark.parametrize(
    ("line", "is_raw"),
    [
        ("asyncio.timeout(20)", True),
        ("asyncio.timeout(patient(20))", False),
        ("asyncio.timeout(SECONDS)", True),
        ("asyncio.timeout(2 * SECONDS)", True),
        ("asyncio.timeout(2 * WAIT_S)", False),
        ("asyncio.timeout(WAIT_S)", False),
        ("asyncio.timeout(0)", False),
        ("asyncio.wait_for(it, 20)", True),
        ("changed.wait_for(done, timeout=20)", True),
        ("subprocess.run(command, timeout=60)", True),
        ("subprocess.run(command, timeout=patient(60))", False),
        ("asyncio.wait([it], timeout=0.1)", False),
        ("pytest.mark.timeout(300)", False),
    ],
)
def test_time_outs_without_patience_are_found(line: str, is_raw: bool) -> None:
    """Also behind a constant of the module."""
    assert bool(list(unscaled(f"SECONDS = 30.0\nWAIT_S: Final = patient(30)\n{line}"))) == is_raw


def test_every_time_out_of_a_test_is_scaled() -> None:
    """`tests/support/patience.py` multiplies it; `tests/simulation` has virtual time."""
    lines = [
        f"{name}:{line}"
        for path in tracked()
        if path.suffix == ".py" and "tests" in path.relative_to(ROOT).parts
        if not (name := str(path.relative_to(ROOT))).startswith("tests/simulation/") and name not in SHOWN
        for line in unscaled(path.read_text())
    ]
    assert not lines, "a time-out that is to grow on a busy machine is patient(seconds)"
