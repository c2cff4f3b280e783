"""Java programs of the tests' own that are asked through a pipe.

Here: compiling one once into `.cache/`, and the command that runs it.
Not here: what it is asked, and answers (`oracle`, `registry.oracle`).
"""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from tests.support.apache_kafka import JDK
from tools.jars import ROOT, need


def command_of(source: Path, libraries: Path) -> list[str]:
    """What runs the class that a source file is named after, on the jars of a folder."""
    classes = _compiled(source, libraries)
    return [need("java", JDK), "-Xmx256m", "-XX:+UseSerialGC", "-cp", _class_path(classes, libraries), source.stem]


def _compiled(source: Path, libraries: Path) -> Path:
    """The folder with its classes, named by a digest of the source; whole as soon as it is there, also while another process compiles."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    folder = ROOT / ".cache" / f"{source.stem}-{digest}"
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            classes = Path(work) / "classes"
            classes.mkdir()
            command = [need("javac", JDK), "-cp", _class_path(classes, libraries), "-d", str(classes), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            try:
                classes.rename(folder)
            except OSError:  # another was faster
                assert folder.exists()
    return folder


def _class_path(classes: Path, libraries: Path) -> str:
    return os.pathsep.join([str(classes), f"{libraries}/*"])
