"""The code in docs/SIMULATION.md is run as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.patience import patient

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "SIMULATION.md"
BLOCK = re.compile(r"^```python (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LOOKS_AT_OFFSETS = "if record.offset > total.last:"


@pytest.mark.slow
@pytest.mark.simulation
@pytest.mark.timeout(600)
def test_the_promises_hold_and_are_broken_without_the_offset(tmp_path: Path) -> None:
    """Both files as a test run; and the line that the text says to leave out is missed."""
    blocks = dict(BLOCK.findall(DOCUMENT.read_text()))
    assert set(blocks) == {"shop.py", "promises.py"}
    for name, text in blocks.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-m", *command]
        return subprocess.run(
            arguments, cwd=tmp_path, capture_output=True, text=True, timeout=patient(500), check=False
        )

    done = run("pytest", "-q", "-p", "no:cacheprovider", "promises.py")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert LOOKS_AT_OFFSETS in blocks["shop.py"]
    (tmp_path / "shop.py").write_text(blocks["shop.py"].replace(LOOKS_AT_OFFSETS, "if True:"))
    done = run("busway.cli", "simulate", "promises:simulation", "--seeds", "100")
    assert done.returncode == 1
    assert "every_order_is_counted_once" in done.stdout, done.stdout + done.stderr
    assert len([line for line in blocks["promises.py"].splitlines() if line.strip()]) <= 20
