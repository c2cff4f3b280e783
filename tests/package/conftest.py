"""Wheel and sdist, built once, and an empty environment for each version of Python.

Here: building, installing, the report of versions that are not on this machine.
Not here: the use of what is installed (`test_installed`).
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.patience import patient
from tools.pythons import VERSIONS, own_version, python

ROOT = Path(__file__).resolve().parents[2]
ALL = "BUSWAY_PYTHONS"
"""Set to `all`, each version that is on this machine is tested; without it the one that runs the tests."""
STEP_S = 300


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the versions that were not tested, with the remedy."""
    for version in sorted({*VERSIONS} - {*tested_versions()}):
        if os.environ.get(ALL) == "all":
            reason = f"it is not on this machine; install it as python{version} on the PATH, or with pyenv"
        else:
            reason = f"`make full STAGES=package`, or {ALL}=all, tests every version"
        terminalreporter.write_line(f"Python {version}: not tested, {reason}")


def tested_versions() -> list[str]:
    """List the versions that are tested."""
    wanted = VERSIONS if os.environ.get(ALL) == "all" else (own_version(),)
    return [version for version in wanted if python(version)]


def done(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command as a user would: without the variables that lead Python to the checkout."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "MYPY", "VIRTUAL_ENV", "BUSWAY_", "PYTEST_"))
    }
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**clean, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=patient(STEP_S),
        check=False,
    )


def succeeded(command: Sequence[str | Path], folder: Path) -> str:
    """Run a command that must succeed; its standard output."""
    result = done(command, folder)
    assert result.returncode == 0, f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}"[-6000:]
    return result.stdout


@dataclass(frozen=True, slots=True, kw_only=True)
class Distributions:
    """The files that `python -m build` makes: the sdist of the checkout, and the wheel of that sdist."""

    sdist: Path
    wheel: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """An empty virtual environment with an installed wheel.

    Attributes:
        bin: folder of its commands.
        folder: empty; nothing of the checkout is importable from it.
    """

    version: str
    bin: Path
    folder: Path
    wheel: Path

    def install(self, *requirements: str) -> None:
        """Install packages with pip, as users do."""
        pip = (self.bin / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        succeeded([*pip, *requirements], self.folder)

    def install_tools(self, *requirements: str) -> None:
        """Install packages with uv if this environment has it: in a few seconds, where it does not matter how."""
        if importlib.util.find_spec("uv") is None:
            self.install(*requirements)
            return
        uv = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", self.bin / "python")
        succeeded([*uv, *requirements], self.folder)


def made(version: str, folder: Path) -> Path:
    """Make a virtual environment; the folder of its commands."""
    executable = python(version)
    assert executable is not None
    succeeded([executable, "-m", "venv", folder / "environment"], folder)
    return folder / "environment" / "bin"


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Both, built in isolation from a copy of the files that git knows or would add."""
    folder = tmp_path_factory.mktemp("built")
    bin_folder = made(own_version(), folder)
    succeeded([bin_folder / "python", "-m", "pip", "install", "--quiet", "build"], folder)
    succeeded([bin_folder / "python", "-m", "build", "--outdir", folder / "dist", ROOT], folder)
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    (wheel,) = (folder / "dist").glob("*.whl")
    return Distributions(sdist=sdist, wheel=wheel)


@pytest.fixture(scope="session", params=tested_versions() or [own_version()])
def environment(
    request: pytest.FixtureRequest, distributions: Distributions, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """One with the wheel and no extra, for each version."""
    folder = tmp_path_factory.mktemp(f"python-{request.param}")
    made_environment = Environment(
        version=request.param, bin=made(request.param, folder), folder=folder, wheel=distributions.wheel
    )
    made_environment.install(str(distributions.wheel))
    return made_environment


assert sys.platform != "win32", "the folder of an environment's commands is bin"
