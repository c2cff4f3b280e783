"""Confluent's own Java client behind a pipe: what it makes of a schema, of two, and of a registry.

What lives here: compiling `java/RegistryOracle.java` once into `.cache/`, and talking to its one JVM. What does not: what is asked.
"""

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tools.jars import ROOT, need, registry_libs

SOURCE = Path(__file__).parent / "java" / "RegistryOracle.java"
JDK = "openjdk-17-jdk-headless"


class Refused(AssertionError):
    """Java threw; holds what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A schema as Java writes it back, and in normal form; None where Java fails over that."""

    canonical: str
    normalized: str | None


class RegistryOracle:
    """The running JVM; a context manager that ends it."""

    def __init__(self) -> None:
        command = [need("java", JDK), "-Xmx256m", "-XX:+UseSerialGC", "-cp", _class_path(_compiled()), "RegistryOracle"]
        # SLF4J says once that it has nowhere to log to; what goes wrong is in the answers.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> "RegistryOracle":
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe(self._process.stdin).close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._pipe(self._process.stdout).close()

    def parse(self, schema: str, references: Mapping[str, str] | None = None) -> Reading:
        """The schema as a new one; `references` are texts by name, dependencies first.

        Raises:
            Refused: Java does not accept it.
        """
        return Reading(**self._ask(ask="parse", schema=schema, references=references or {}, new=True))

    def compare(self, reader: str, writer: str) -> list[tuple[str, str, str]]:
        """Kind, path and text of each incompatibility, in Java's order."""
        return [
            (one["kind"], one["path"], one["info"]) for one in self._ask(ask="compare", reader=reader, writer=writer)
        ]

    def check(self, level: str, schema: str, earlier: Sequence[str]) -> list[str]:
        """The messages of Confluent's checker at a level; earlier schemas oldest first."""
        found: list[str] = self._ask(ask="check", level=level, schema=schema, earlier=list(earlier))
        return found

    def guid_bytes(self, request: Mapping[str, Any]) -> str:
        """MD5 in hexadecimal over schema, references, metadata and rule set, fed by Confluent's own classes."""
        found: str = self._ask(ask="hash", **{"references": [], **request})
        return found

    def rest_round(self, url: str, subject: str, schemas: Sequence[str]) -> dict[str, Any]:
        """What Confluent's RestService met on a walk through a registry: a result or an error code for each step."""
        found: dict[str, Any] = self._ask(ask="rest", url=url, subject=subject, schemas=list(schemas))
        return found

    def _ask(self, **question: Any) -> Any:
        to, back = self._pipe(self._process.stdin), self._pipe(self._process.stdout)
        to.write(json.dumps(question) + "\n")
        to.flush()
        line = back.readline()
        assert line, "the JVM ended early"
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["ok"]

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def _compiled() -> Path:
    """The folder with the compiled program; named by a digest of its source."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    folder = ROOT / ".cache" / f"registry-oracle-{digest}"
    if not (folder / "RegistryOracle.class").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [need("javac", JDK), "-cp", _class_path(folder), "-d", str(folder), str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return folder


def _class_path(folder: Path) -> str:
    return os.pathsep.join([str(folder), f"{registry_libs()}/*"])
