"""Stages of the gate: a failed test runs once more, alone, and what became of it is in the table."""

import sys
from pathlib import Path

import pytest
from tools import stages
from tools.stages import Stage, chosen, run_stages

FAILS_ONCE = """
from pathlib import Path
TRIED = Path("tried")
def test_passes(): pass
def test_fails_at_first():
    tried = TRIED.exists()
    TRIED.touch()
    assert tried
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project with the virtual environment of this one."""
    monkeypatch.setattr(stages, "ROOT", tmp_path)
    monkeypatch.setattr(stages, "LOGS", tmp_path / "build")
    monkeypatch.setattr(stages, "FAILED", tmp_path / ".pytest_cache/v/cache/lastfailed")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def of_tests(project: Path, text: str) -> Stage:
    """A stage that runs a file of tests."""
    (project / "test_it.py").write_text(text)
    return Stage(name="test", command=(".venv/bin/python", "-m", "pytest", "-q", "test_it.py"))


@pytest.mark.slow
def test_what_fails_once_passes_and_is_listed(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With the files of both outputs."""
    assert run_stages([of_tests(project, FAILS_ONCE)]) == 0
    printed = capfd.readouterr().out
    assert (
        "passed on the second try: 1\n  test_it.py::test_fails_at_first: build/test.log build/test.second-1.log"
        in printed
    )
    assert "1 failed, 1 passed" in (project / "build/test.log").read_text()
    assert "1 passed" in (project / "build/test.second-1.log").read_text()


@pytest.mark.slow
def test_what_fails_twice_fails_the_run_and_the_rest_goes_on(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The table names the test; the stage after it runs."""
    failing = of_tests(project, "def test_fails(): assert False")
    assert run_stages([failing, Stage(name="next", command=("true",))]) == 1
    lines = [" ".join(line.split()[:2] + line.split()[3:]) for line in capfd.readouterr().out.splitlines()]
    assert "test failed test_it.py::test_fails" in lines
    assert "next passed" in lines


@pytest.mark.slow
def test_many_failures_are_not_tried_again(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """They tell of a change that breaks something."""
    many = stages.TRIED_AGAIN_MAX + 1
    text = f"import pytest\n@pytest.mark.parametrize('at', range({many}))\ndef test_fails(at): assert False"
    assert run_stages([of_tests(project, text)]) == 1
    assert "once more" not in capfd.readouterr().out


def test_a_command_without_tests_fails_at_once_unless_it_may_run_again(project: Path) -> None:
    """A stage that waits for processes may; a check or a simulation is the same each time."""
    once = ("sh", "-c", "test -e tried || { touch tried; exit 3; }")
    assert run_stages([Stage(name="sim", command=once)]) == 1
    (project / "tried").unlink()
    assert run_stages([Stage(name="demo", command=once, again=True)]) == 0


def test_a_stage_that_is_not_there_is_refused() -> None:
    """The message names those that are; the order is theirs."""
    known = [Stage(name="one", command=()), Stage(name="two", command=())]
    assert chosen(known, ["two", "one"]) == known
    assert chosen(known, []) == known
    with pytest.raises(SystemExit, match="there is no stage three: one, two"):
        chosen(known, ["three"])


def test_a_stage_beside_another_has_a_row_and_a_file_of_its_own(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Both run at the same time; a failure of either fails the run, and both outputs are printed."""
    (project / "ready").touch()
    waits = ("sh", "-c", "echo first; while test -e ready; do sleep 0.01; done")
    frees = ("sh", "-c", "echo second; rm ready; exit 3")
    beside = Stage(name="check", command=frees, tests=False)
    assert run_stages([Stage(name="package", command=waits, beside=(beside,))]) == 1
    printed = capfd.readouterr().out
    assert "first\n" in printed
    assert "second\n" in printed
    assert [" ".join(line.split()[:2]) for line in printed.splitlines()[-5:-3]] == ["package passed", "check failed"]
    assert (project / "build/check.log").read_text() == "second\n"


def test_modules_are_compiled_once(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The stages start hundreds of processes; without caches each would compile everything that it imports."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert run_stages([Stage(name="shown", command=("sh", "-c", 'echo "is: $PYTHONDONTWRITEBYTECODE"'))]) == 0
    assert "is: \n" in capfd.readouterr().out
