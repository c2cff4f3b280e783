"""Make `.venv` and install the project there with an extra: `python3 tools/install.py demo`.

Here: the virtual environment, pip with a line of progress for each package.
Not here: which packages (pyproject.toml). The standard library alone, as nothing is installed before.
"""

import argparse
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
OLDEST: Final = (3, 11)
LINES_KEPT: Final = 40
"""Of pip's output, shown after a failure."""
_DOWNLOADS: Final = ("Downloading ", "Using cached ")
_UNPACKS: Final = "Installing collected packages: "


def main() -> int:
    """Install; 0 when it is installed."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Make .venv and install an extra there.")
    parser.add_argument("extra")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    given = parser.parse_args()
    if sys.version_info < OLDEST:
        sys.stderr.write(
            f"Busway needs Python 3.11 or newer, {sys.executable} is {sys.version.split()[0]}; make demo PYTHON=python3.11 takes another one\n"
        )
        return 1
    begun = time.monotonic()
    try:
        return install(given.extra, given.venv, begun)
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped; the next run goes on from here\n")
        return 130


def install(extra: str, venv: Path, begun: float) -> int:
    """Run pip in the environment, which is made first where there is none."""
    python = venv / "bin" / "python"
    if not python.exists():
        _tell(begun, f"makes {venv.name}")
        made = subprocess.run(  # noqa: S603 - a fixed command line
            [sys.executable, "-m", "venv", str(venv)], capture_output=True, text=True, check=False
        )
        if made.returncode:
            sys.stderr.write(
                f"{made.stdout}{made.stderr}\n{venv} cannot be made; Debian and Ubuntu: apt-get install python3-venv\n"
            )
            return made.returncode
    command = [
        str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off",
        "--no-compile", "--editable", f"{ROOT}[{extra}]",
    ]  # fmt: skip
    process = subprocess.Popen(  # noqa: S603 - a fixed command line
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    last: deque[str] = deque(maxlen=LINES_KEPT)
    try:
        for line in process.stdout:
            last.append(line)
            if (step := progress(line)) is not None:
                _tell(begun, step)
        code = process.wait()
    finally:
        process.terminate()
    if code:
        sys.stderr.write("".join(last))
        return code
    _tell(begun, f"installed, {size_mb(venv)} MB in {venv.name}")
    return 0


def progress(line: str) -> str | None:
    """Return what a line of pip's output says of its progress; None where that is nothing new."""
    text = line.strip()
    for start in _DOWNLOADS:
        if text.startswith(start):
            file = text.removeprefix(start).partition(" ")[0].rpartition("/")[2]
            return None if file.endswith(".metadata") else " ".join(file.split("-")[:2])
    if text.startswith(_UNPACKS):
        return f"unpacks {text.count(',') + 1} packages"
    return None


def size_mb(folder: Path) -> int:
    """Return the size of all files in MB."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir()) // 1_000_000


def _tell(begun: float, text: str) -> None:
    sys.stdout.write(f"{time.monotonic() - begun:5.1f} s  {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
