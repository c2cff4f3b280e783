"""Interpreters of this machine, by version."""

import os
import sys
from pathlib import Path

import pytest
from tools.pythons import own_version, python


def test_this_interpreter_is_first() -> None:
    """No search is needed for the version that runs."""
    assert python(own_version()) == sys.executable


def test_a_version_that_is_not_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command of that name that is another version, or that fails as pyenv's do, is not taken."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, text in {"python3.99": f'exec {sys.executable} "$@"', "python3.98": "exit 127"}.items():
        command = tmp_path / name
        command.write_text(f"#!/bin/sh\n{text}\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert python("3.99") is None
    assert python("3.98") is None
    assert python("3.97") is None


def test_one_of_pyenv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Which is not on the PATH."""
    folder = tmp_path / ".pyenv/versions/3.97.1/bin"
    folder.mkdir(parents=True)
    command = folder / "python3.97"
    command.write_text("#!/bin/sh\necho 3.97\n")
    command.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert python("3.97") == str(command)
