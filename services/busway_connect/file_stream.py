"""Lines of a file ↔ a topic: Kafka's example connectors, with their names and settings.

Here: `FileStreamSource` and `FileStreamSink`, for trials and tests. A truncated file is read from its start. Workers
need `plugin.modules=busway_connect.file_stream`, as with these REST clients can read and write the worker's files.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Final

from busway_connect.connector import Config, Offset, Retriable, Setting, Sink, SinkRecord, Source, SourceRecord
from busway_connect.schema import Schema

_WAIT_S: Final = 0.25
_STRING: Final = Schema(type="string")


class FileStreamSource(Source):
    class_names: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.file.FileStreamSourceConnector",)
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(name="file", doc="Source filename.", required=True, importance="HIGH"),
        Setting(name="topic", doc="The topic to publish data to", required=True, importance="HIGH"),
        Setting(name="batch.size", doc="The most records that are read at a time", default="2000", type="INT", importance="LOW"),
    )  # fmt: skip

    def __init__(self, name: str, config: Config) -> None:
        super().__init__(name, config)
        self._path = Path(config["file"])
        self._batch = int(config.get("batch.size", "2000"))
        self._partition: Mapping[str, Any] = {"filename": config["file"]}
        self._file: IO[bytes] | None = None
        self._position = 0

    @classmethod
    def offset_problem(cls, config: Config, partition: Mapping[str, Any], offset: Offset) -> str | None:
        """Check `{"filename": …}` and `{"position": BYTES}`, as in Kafka's connector."""
        position = offset.get("position")
        if set(partition) != {"filename"}:
            return "the partition has one member, filename"
        if isinstance(position, bool) or not isinstance(position, int) or position < 0:
            return f"the position is a number from 0, not {position!r:.80}"
        return None

    async def start(self, offsets: Sequence[tuple[Mapping[str, Any], Offset]]) -> None:
        self._position = next((int(at["position"]) for partition, at in offsets if partition == self._partition), 0)

    def position(self, offset: Offset) -> Sequence[int | str]:
        return [int(offset["position"])]

    async def read(self) -> Sequence[SourceRecord]:
        """Return whole lines only; the last one needs its newline."""
        records = await asyncio.to_thread(self._read_lines)
        if not records:
            await asyncio.sleep(_WAIT_S)
        return records

    def _read_lines(self) -> list[SourceRecord]:
        try:
            if self._file is None:
                self._file = self._path.open("rb")
        except FileNotFoundError:
            return []
        except OSError as problem:
            raise Retriable(f"{self._path} cannot be read: {problem.strerror}") from None
        if os.fstat(self._file.fileno()).st_size < self._position:
            self._position = 0
        self._file.seek(self._position)
        records: list[SourceRecord] = []
        for line in self._file:
            if not line.endswith(b"\n") or len(records) >= self._batch:
                break
            self._position += len(line)
            text = line.rstrip(b"\r\n").decode(errors="replace")
            records.append(
                SourceRecord(
                    topic=self.config["topic"],
                    value=text,
                    value_schema=_STRING,
                    partition=self._partition,
                    offset={"position": self._position},
                )
            )
        return records

    async def stop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class FileStreamSink(Sink):
    """Writes records as lines, synced to disk before their offsets are committed."""

    class_names: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.file.FileStreamSinkConnector",)
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(name="file", doc="Destination filename.", required=True, importance="HIGH"),
    )

    def __init__(self, name: str, config: Config) -> None:
        super().__init__(name, config)
        self._file: IO[str] | None = None

    async def start(self) -> None:
        try:
            self._file = await asyncio.to_thread(Path(self.config["file"]).open, "a", encoding="utf-8")
        except OSError as problem:
            raise Retriable(f"{self.config['file']} cannot be written: {problem.strerror}") from None

    async def write(self, batch: Sequence[SinkRecord]) -> None:
        await asyncio.to_thread(self._write, "".join(f"{record.value}\n" for record in batch))

    def _write(self, text: str) -> None:
        assert self._file is not None
        try:
            self._file.write(text)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as problem:
            raise Retriable(f"{self.config['file']} cannot be written: {problem.strerror}") from None

    async def stop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
