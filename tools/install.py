"""Make `.venv` and install the project there with an extra: `python3 tools/install.py demo`.

Here: the virtual environment, uv in it, pip where uv fails, a line of progress for each package.
Not here: which packages (pyproject.toml). The standard library alone, as nothing is installed before.

uv installs in seconds what takes pip most of a minute. It reads none of pip's settings: those that it can have are passed to it; with others pip installs.
"""

import argparse
import os
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
OLDEST: Final = (3, 11)
LINES_KEPT: Final = 40
"""Of the installer's output, shown after a failure."""
_DOWNLOADS: Final = ("Downloading ", "Using cached ")
_UNPACKS: Final = "Installing collected packages: "
_UV_PHASES: Final = ("Resolved ", "Prepared ", "Installed ")
_UV_NAMES: Final = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
"""Settings of pip and the variables that mean the same to uv."""
_SAME_RESULT: Final = frozenset(
    {
        "break-system-packages", "cache-dir", "default-timeout", "disable-pip-version-check", "no-cache-dir", "no-color", "no-input",
        "progress-bar", "quiet", "require-virtualenv", "retries", "root-user-action", "timeout", "verbose",
    }
)  # fmt: skip
"""Settings of pip that do not change what is installed."""


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
    """Run uv in the environment, which is made first where there is none; pip if uv fails."""
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
    wanted = ["--editable", f"{ROOT}[{extra}]"]
    pip = [str(python), "-m", "pip"]
    install_ = [*pip, "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--no-compile"]
    listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command line
    environment = uv_environment(listed.stdout)
    code = 1
    if environment is not None:
        code = _run([*install_, "uv"], {}, begun, quiet=True)
    if code == 0 and environment is not None:
        uv = [str(python), "-m", "uv", "pip", "install", "--python", str(python)]
        code = _run([*uv, *wanted], environment, begun, quiet=True)
    if code:
        _tell(begun, "pip installs, which takes longer than uv")
        code = _run([*install_, *wanted], {}, begun)
    if code == 0:
        _tell(begun, f"installed, {size_mb(venv)} MB in {venv.name}")
    return code


def uv_environment(pip_settings: str) -> dict[str, str] | None:
    """Return variables for uv that mean what pip's settings mean; None where a setting has no counterpart.

    Variables, not options: an index may have a password, and options are in the list of processes.

    Args:
        pip_settings: the output of `pip config list`.
    """
    environment = {"UV_SYSTEM_CERTS": "1", "UV_HTTP_TIMEOUT": "60"}
    # pip's own variables win over its files.
    for line in sorted(pip_settings.splitlines(), key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        name = name.rpartition(".")[2]
        if name in _SAME_RESULT:
            continue
        if name not in _UV_NAMES:
            return None
        values = value.strip("'\"").replace("\\n", " ").split()
        if name == "find-links":
            values = [
                each for each in values if "://" in each or Path(each).is_dir()
            ]  # pip skips a folder that is missing
        if values:
            environment[_UV_NAMES[name]] = ("," if name == "find-links" else " ").join(values)
    return environment


def _run(command: list[str], environment: dict[str, str], begun: float, *, quiet: bool = False) -> int:
    """Run an installer with lines of progress; its exit code. Unless `quiet`, its last lines are printed if it fails."""
    process = subprocess.Popen(  # noqa: S603 - a fixed command line
        command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
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
    if code and not quiet:
        sys.stderr.write("".join(last))
    return code


def progress(line: str) -> str | None:
    """Return what a line of an installer's output says of its progress; None where that is nothing new."""
    text = line.strip()
    for start in _DOWNLOADS:
        if text.startswith(start):
            file, _, size = text.removeprefix(start).partition(" ")
            file = file.rpartition("/")[2]
            if not file.endswith((".metadata", ".whl", ".tar.gz")):
                return f"{file} {size}".strip()  # uv's line
            return None if file.endswith(".metadata") else " ".join(file.split("-")[:2])
    if text.startswith(_UV_PHASES):
        return text[0].lower() + text[1:]
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
