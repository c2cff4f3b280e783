"""Run the stages of a check one after the other and print a table of them.

Here: running a stage's command, the second try of its failed tests, the table at the end.
Not here: which stages there are (`gate`, `full`). The standard library alone: the first stage makes the virtual
environment.

Output goes to the terminal and to `build/stages/STAGE.log`. pytest leaves the failed tests of a stage in its cache, where they are read.
Each runs once more, alone. A test that passes then is listed, with the files of both outputs; a test that fails twice fails its stage.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOGS: Final = ROOT / "build" / "stages"
FAILED: Final = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
TRIED_AGAIN_MAX: Final = 12
"""More failed tests than these are a change that breaks something: nothing of the stage runs again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A command of the project.

    Attributes:
        name: one word, as in `make full STAGES="…"`.
        command: the words of a command line, run in the project's root.
        environment: variables beside those that are there.
        again: whether the whole command runs once more after a failure. For commands that run no tests and wait for processes.
        beside: stages that run at the same time, one after the other, and run no tests. Their output is printed when all have ended.
        tests: whether the command runs tests of which the failed ones run once more.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    again: bool = False
    beside: "Sequence[Stage]" = ()
    tests: bool = True


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The result of a stage.

    Attributes:
        failed: tests that failed twice, or the stage itself where no test is to blame.
        second_try: tests that failed and then passed alone; each with the files of its two outputs.
    """

    stage: Stage
    seconds: float = 0.0
    failed: list[str] = field(default_factory=list)
    second_try: dict[str, tuple[Path, Path]] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """The result in the table."""
        return "failed" if self.failed else "passed"


def run_stages(stages: Sequence[Stage]) -> int:
    """Run all stages in order, also after one that failed; 0 when all passed, otherwise 1."""
    LOGS.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    began = time.monotonic()
    for stage in stages:
        _announce(stage, began)
        outcomes += _run_with_others(stage, began)
    print(f"\n{table(outcomes, time.monotonic() - began)}", flush=True)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def _announce(stage: Stage, began: float) -> None:
    print(f"\n== {stage.name}: {' '.join(stage.command)} ({time.monotonic() - began:.0f} s since start)", flush=True)


def _run_with_others(stage: Stage, began: float) -> list[Outcome]:
    for other in stage.beside:
        assert not other.tests, f"{other.name} runs beside {stage.name}: their failed tests could not be told apart"
    with ThreadPoolExecutor(1) as thread:
        others = [thread.submit(run_stage, other, quiet=True) for other in stage.beside]
        outcomes = [run_stage(stage), *(other.result() for other in others)]
    for other in stage.beside:
        _announce(other, began)
        print((LOGS / f"{other.name}.log").read_text(errors="replace"), end="", flush=True)
    return outcomes


def run_stage(stage: Stage, *, quiet: bool = False) -> Outcome:
    """Run a stage, and its failed tests once more.

    Args:
        quiet: the output goes to the file alone.
    """
    outcome = Outcome(stage=stage)
    began = time.monotonic()
    if stage.tests:
        FAILED.unlink(missing_ok=True)
    first = LOGS / f"{stage.name}.log"
    code = run(stage.command, stage.environment, first, quiet=quiet)
    if code != 0:
        _try_again(outcome, code, first)
    outcome.seconds = time.monotonic() - began
    return outcome


def _try_again(outcome: Outcome, code: int, first: Path) -> None:
    stage = outcome.stage
    tests = failed_tests() if stage.tests else []
    if not tests and stage.again:
        second = first.with_suffix(".second.log")
        print(f"-- {stage.name} ended with {code}; once more", flush=True)
        if run(stage.command, stage.environment, second) == 0:
            outcome.second_try[stage.name] = (first, second)
            return
    if not tests or len(tests) > TRIED_AGAIN_MAX:
        outcome.failed += tests or [f"{stage.name} ended with {code}"]
        return
    for number, test in enumerate(tests, 1):
        second = LOGS / f"{stage.name}.second-{number}.log"
        print(f"-- once more, alone: {test}", flush=True)
        alone = [".venv/bin/python", "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", test]
        if run(alone, stage.environment, second) == 0:
            outcome.second_try[test] = (first, second)
        else:
            outcome.failed.append(test)


def failed_tests() -> list[str]:
    """The node ids of the tests that failed since the file of pytest's cache was deleted; files that could not be collected too."""
    return sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []


def run(command: Sequence[str], environment: Mapping[str, str], log: Path, *, quiet: bool = False) -> int:
    """Run a command; its output goes to a file and, unless `quiet`, to the terminal. Its exit code."""
    with (
        log.open("wb") as file,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**_environment(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            if not quiet:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
    return process.returncode


def _environment() -> dict[str, str]:
    """Return the environment without the variable that makes each start of Python compile all modules again."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def table(outcomes: Sequence[Outcome], seconds: float) -> str:
    """Stage, result, seconds and failed tests; after it the tests that passed on the second try.

    Args:
        seconds: of all stages together.
    """
    rows = [("stage", "result", "seconds", "failed tests")]
    rows += [(each.stage.name, each.word, f"{each.seconds:.0f}", " ".join(each.failed)) for each in outcomes]
    rows.append(("all", "", f"{seconds:.0f}", ""))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    again = [
        f"  {test}: {first.relative_to(ROOT)} {second.relative_to(ROOT)}"
        for each in outcomes
        for test, (first, second) in each.second_try.items()
    ]
    return "\n".join(
        [*(line.rstrip() for line in lines), "", f"passed on the second try: {len(again) or 'none'}", *again]
    )


def chosen(stages: Sequence[Stage], names: Sequence[str]) -> list[Stage]:
    """The stages of these names, in the order of the stages; all without names.

    Raises:
        SystemExit: a name that no stage has.
    """
    by_name = {stage.name: stage for stage in stages}
    for name in names:
        if name not in by_name:
            raise SystemExit(f"there is no stage {name}: {', '.join(by_name)}")
    return [stage for stage in stages if not names or stage.name in names]
