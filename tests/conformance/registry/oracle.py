"""Confluent's own Java client behind a pipe: what it makes of a schema, of two, and of a registry.

Here: talking to its one JVM, which runs `java/RegistryOracle.java`.
Not here: starting it (`java_program`), what is asked.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.conformance.java_program import command_of
from tests.support.patience import patient
from tests.support.programs import spawn
from tools.jars import registry_libs

SOURCE = Path(__file__).parent / "java" / "RegistryOracle.java"


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
        # SLF4J says once that it has nowhere to log to; what goes wrong is in the answers.
        self._process = spawn(
            command_of(SOURCE, registry_libs()),
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
            self._process.wait(timeout=patient(20))
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
            (breach["kind"], breach["path"], breach["info"])
            for breach in self._ask(ask="compare", reader=reader, writer=writer)
        ]

    def check(self, level: str, schema: str, earlier: Sequence[str]) -> list[str]:
        """The messages of Confluent's checker at a level; earlier schemas oldest first."""
        messages: list[str] = self._ask(ask="check", level=level, schema=schema, earlier=list(earlier))
        return messages

    def guid_bytes(self, request: Mapping[str, Any]) -> str:
        """MD5 in hexadecimal over schema, references, metadata and rule set, fed by Confluent's own classes."""
        guid: str = self._ask(ask="hash", **{"references": [], **request})
        return guid

    def rest_round(self, url: str, subject: str, schemas: Sequence[str]) -> dict[str, Any]:
        """What Confluent's RestService met on a walk through a registry: a result or an error code for each step."""
        answers: dict[str, Any] = self._ask(ask="rest", url=url, subject=subject, schemas=list(schemas))
        return answers

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
