"""Apache Kafka's own message classes behind a pipe: bytes in, what Kafka reads in them out.

Here: talking to its one JVM, which runs `java/Oracle.java`.
Not here: starting it (`java_program`), what is asked (`test_bytes_against_java`).
"""

import json
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.conformance.java_program import command_of
from tests.support.patience import patient
from tests.support.programs import spawn
from tools.jars import kafka_libs

SOURCE = Path(__file__).parent / "java" / "Oracle.java"
CORRELATION_ID = 7
CLIENT_ID = "client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One message as Kafka read it: as JSON, encoded again, and as a whole frame (empty for headers)."""

    fields: dict[str, Any]
    encoded: bytes
    frame: bytes


class Refused(AssertionError):
    """Kafka's class could not read the bytes."""


class Oracle:
    """The running JVM; a context manager that ends it."""

    def __init__(self) -> None:
        command = command_of(SOURCE, kafka_libs())
        self._process = spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> "Oracle":
        return self

    def __exit__(self, *_: object) -> None:
        self._in.close()
        try:
            self._process.wait(timeout=patient(20))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._out.close()

    @property
    def _in(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _out(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def table(self, name: str) -> list[dict[str, Any]]:
        """Kafka's table `Errors` or `ApiKeys`."""
        (text,) = self._ask(name, 0, b"")
        rows: list[dict[str, Any]] = json.loads(text)
        return rows

    def read(self, name: str, version: int, body: bytes) -> Reading:
        """What Kafka's class `name` makes of `body`.

        Raises:
            Refused: it cannot be read; with Kafka's words.
        """
        text, encoded, frame = self._ask(name, version, body)
        return Reading(fields=json.loads(text), encoded=encoded, frame=frame)

    def _ask(self, name: str, version: int, body: bytes) -> list[bytes]:
        label = name.encode()
        self._in.write(struct.pack(">H", len(label)) + label + struct.pack(">hi", version, len(body)) + body)
        self._in.flush()
        good, count = self._exactly(2)
        pieces = [self._exactly(struct.unpack(">i", self._exactly(4))[0]) for _ in range(count)]
        if not good:
            raise Refused(f"{name} v{version}: {pieces[0].decode()} for {body.hex()}")
        return pieces

    def _exactly(self, size: int) -> bytes:
        data = self._out.read(size)
        assert len(data) == size, "the JVM ended early; its words are above"
        return data
