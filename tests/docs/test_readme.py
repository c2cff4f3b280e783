"""The code in the README is run as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.patience import patient

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_the_service_and_its_test_pass(tmp_path: Path) -> None:
    """Both blocks, written into files of the names they carry, pass as a test run."""
    blocks = dict(BLOCK.findall((ROOT / "README.md").read_text()))
    assert set(blocks) == {"service.py", "test_service.py"}
    for name, text in blocks.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\npythonpath = .\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_service.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=patient(100), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    code = [line for line in blocks["service.py"].splitlines() if line.strip()]
    assert len(code) <= 25


def test_every_command_in_the_readme_exists() -> None:
    """Each `busway …` is a command, and each `make …` a target."""
    text = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^\$ make ([a-z]+)", text, re.MULTILINE)) <= targets
    done = subprocess.run([sys.executable, "-m", "busway.cli", "--help"], capture_output=True, text=True, check=True)
    for command in set(re.findall(r"(?:`|\$ )busway ([a-z]+)", text)):
        assert f" {command} " in done.stdout, command
