"""Install what the foreign-client suite drives and is missing here: `python -m tools.install_foreign`.

Here: the programs (a JVM, Maven, kcat, Go, Node, PostgreSQL, Chromium, curl) from the Debian packages, franz-go's and
sarama's programs built from the Go module proxy, kafkajs from npm, Kubernetes' schemas from PyPI.
Not here: Kafka's own jars (`tools.jars`); the Python clients, which the `dev` extra brings. Both ask for Go 1.26; a Go
from 1.21 on fetches that by itself, an older one is named in the failure. What is built goes to `.cache`, into folders
named by a digest of their sources; what is there is not made again.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.jars import ToolMissing

ROOT = Path(__file__).resolve().parent.parent
FRANZ_GO = ROOT / "tests" / "interop" / "franz_go"
SARAMA = ROOT / "tests" / "interop" / "sarama"
KAFKAJS = ROOT / "tests" / "interop" / "kafkajs"
KUBERNETES_SCHEMAS = "kubernetes-validate==1.37.0"
COMMAND = "python -m tools.install_foreign"
PACKAGES = {
    "java": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "kcat": "kcat",
    "go": "golang-go",
    "node": "nodejs",
    "npm": "npm",
    "pg_ctlcluster": "postgresql",
    "chromium": "chromium",
    "curl": "curl",
    "systemd-analyze": "systemd",
}
"""Program -> the Debian package that brings it."""


def need(program: str) -> str:
    """The path of a program.

    Raises:
        ToolMissing: it is not installed.
    """
    path = shutil.which(program)
    if path is None:
        raise ToolMissing(f"{program} is not installed: {COMMAND} (or apt-get install -y {PACKAGES[program]})")
    return path


def postgres_bin() -> Path:
    """The folder with PostgreSQL's server programs, which Debian keeps off the PATH; the newest version of several.

    Raises:
        ToolMissing: it is not installed.
    """
    beside = Path(postgres).resolve().parent if (postgres := shutil.which("postgres")) else None
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if beside is None and not debian:
        raise ToolMissing(f"PostgreSQL's server is not installed: {COMMAND} (or apt-get install -y postgresql)")
    return beside or debian[-1].parent


def _folder(name: str, sources: list[Path]) -> Path:
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    return ROOT / ".cache" / f"{name}-{digest}"


def franz_go() -> Path:
    """The program on franz-go; built on first use."""
    return go_program("franz-go", FRANZ_GO)


def sarama() -> Path:
    """Return the program on sarama; built on first use."""
    return go_program("sarama", SARAMA)


def go_program(name: str, sources: Path) -> Path:
    """Return the program of a folder of Go sources; built on first use.

    Raises:
        ToolMissing: Go is not installed, or the build failed.
    """
    program = (
        _folder(name, sorted(path for path in sources.iterdir() if path.suffix in {".go", ".mod", ".sum"})) / "client"
    )
    if not program.exists():
        _run([need("go"), "build", "-o", str(program), "."], sources)
    return program


def kafkajs() -> Path:
    """The `node_modules` with kafkajs and its codecs.

    Raises:
        ToolMissing: they are not installed.
    """
    folder = _folder("kafkajs", [KAFKAJS / "package.json"])
    if not (folder / ".complete").exists():
        raise ToolMissing(f"kafkajs is not installed: {COMMAND}")
    return folder / "node_modules"


def install_kafkajs() -> None:
    """Fetch kafkajs and its codecs; nothing if they are there."""
    folder = _folder("kafkajs", [KAFKAJS / "package.json"])
    if (folder / ".complete").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(KAFKAJS / "package.json", folder)
    _run([need("npm"), "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"], folder)
    (folder / ".complete").touch()


def kubernetes_schemas() -> Path:
    """The folder of the Python package that checks manifests.

    Raises:
        ToolMissing: it is not installed.
    """
    folder = ROOT / ".cache" / KUBERNETES_SCHEMAS
    if not (folder / ".complete").exists():
        raise ToolMissing(f"{KUBERNETES_SCHEMAS} is not installed: {COMMAND}")
    return folder


def install_kubernetes_schemas() -> None:
    """Fetch Kubernetes' schemas (23 MB, so not a part of `dev`); nothing if they are there."""
    folder = ROOT / ".cache" / KUBERNETES_SCHEMAS
    if not (folder / ".complete").exists():
        _run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), KUBERNETES_SCHEMAS], ROOT)
        (folder / ".complete").touch()


def install_packages() -> None:
    """Fetch the Debian packages of the programs that are missing."""
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise ToolMissing(f"there is no apt-get here; install by hand: {', '.join(missing)}")
    root = [] if os.geteuid() == 0 else ["sudo"]
    _run([*root, "apt-get", "update", "-q"], ROOT)
    _run([*root, "apt-get", "install", "-y", "-q", "--no-install-recommends", *missing], ROOT)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 - fixed commands
    if done.returncode != 0:
        raise ToolMissing(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")


def main() -> int:
    """Install all that is missing and say what there is."""
    try:
        install_packages()
        install_kafkajs()
        install_kubernetes_schemas()
        sys.stdout.write(f"franz-go: {franz_go()}\nsarama: {sarama()}\nkafkajs: {kafkajs()}\n")
    except ToolMissing as missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
