"""Python interpreters of this machine, by version.

Here: the versions that Busway supports, and where each is.
Not here: environments made with them (`tests/package`). The standard library alone.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
"""Versions that a package is installed and used with, where they are installed."""
_SAY_VERSION: Final = "import sys, venv, ensurepip; print('{}.{}'.format(*sys.version_info))"


def own_version() -> str:
    """Return the version of this interpreter, such as `3.11`."""
    return "{}.{}".format(*sys.version_info)


def python(version: str) -> str | None:
    """Find an interpreter that can make virtual environments: this one, one on the PATH or one of pyenv; None without one."""
    return next((each for each in _candidates(version) if _is_version(each, version)), None)


def _candidates(version: str) -> Iterator[str]:
    if version == own_version():
        yield sys.executable
    if on_path := shutil.which(f"python{version}"):
        yield on_path
    for path in sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/python{version}"), reverse=True):
        yield str(path)


def _is_version(executable: str, version: str) -> bool:
    done = subprocess.run([executable, "-c", _SAY_VERSION], capture_output=True, text=True, check=False)  # noqa: S603 - a Python of this machine
    return done.returncode == 0 and done.stdout.strip() == version
