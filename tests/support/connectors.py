"""Connectors for tests: a source that counts, in the same order every time it is asked, and a sink that keeps what it gets."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from busway_connect import (
    Config,
    ConfigInvalid,
    Field,
    Offset,
    RecordRefused,
    Retriable,
    Schema,
    Setting,
    Sink,
    SinkRecord,
    Source,
    SourceRecord,
)

NUMBER = Schema(type="struct", name="test.Number", fields=(Field(name="n", schema=Schema(type="int64")),))
KEY = Schema(type="struct", name="test.Key", fields=(Field(name="key", schema=Schema(type="string")),))


class CountingSource(Source):
    """Numbers 0 to `count`, spread over `topics`; each third number gives two records with one offset."""

    class_names: ClassVar[tuple[str, ...]] = ("tests.CountingSourceConnector",)
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(name="count", doc="how far", required=True, type="LONG"),
        Setting(name="topics", doc="where to, with commas", required=True, type="LIST"),
        Setting(name="fails.at", doc="raises Retriable there, once", type="LONG"),
        Setting(name="breaks.at", doc="raises something else there, every time", type="LONG"),
        Setting(name="keyless.at", doc="only this number has no key, instead of each fifth", type="LONG"),
        Setting(
            name="aborts.at", doc="with boundaries of its own, takes back there what came since the last", type="LONG"
        ),
        Setting(
            name="commits.each", doc="with boundaries of its own, commits behind each so many numbers", type="LONG"
        ),
        Setting(name="unfit.at", doc="hands over there what its schema does not allow", type="LONG"),
    )

    @classmethod
    def serves(cls, name: str) -> bool:
        return name.startswith("note") or super().serves(name)

    @classmethod
    def defines_boundaries(cls, config: Config) -> bool:
        return "commits.each" in config

    committed_offsets: ClassVar[dict[str, list[int]]] = {}
    failed: ClassVar[set[str]] = set()
    reads: ClassVar[Counter[str]] = Counter()

    def __init__(self, name: str, config: Config) -> None:
        super().__init__(name, config)
        self._topics = config["topics"].split(",")
        self._next = 0

    async def start(self, offsets: Sequence[tuple[Mapping[str, Any], Offset]]) -> None:
        self._next = next((int(at["n"]) + 1 for _, at in offsets), 0)

    def position(self, offset: Offset) -> Sequence[int | str] | None:
        return [int(offset["n"])]

    async def read(self) -> Sequence[SourceRecord]:
        self.reads[self.name] += 1
        if self._next >= int(self.config["count"]):
            await asyncio.sleep(0.02)
            return []
        records: list[SourceRecord] = []
        for number in range(self._next, min(self._next + 50, int(self.config["count"]))):
            if number == int(self.config.get("fails.at", -1)) and self.name not in self.failed:
                if records:
                    break
                self.failed.add(self.name)
                raise Retriable("the outside is away for a moment")
            if number == int(self.config.get("breaks.at", -1)):
                if records:
                    break
                raise ConfigInvalid({"breaks.at": "this number cannot be"})
            records += [self._record(number, copy) for copy in range(2 if number % 3 == 0 else 1)]
            self._next = number + 1
            if self.boundaries is not None:
                if number == int(self.config.get("aborts.at", -1)):
                    self.boundaries.abort(records[-1])
                elif self._next % int(self.config["commits.each"]) == 0:
                    self.boundaries.commit(records[-1])
        await asyncio.sleep(0)
        return records

    def _record(self, number: int, copy: int) -> SourceRecord:
        value: Any = {"n": number}
        if number == int(self.config.get("unfit.at", -1)):
            value = {"n": "no number"}
        keyless = number == int(self.config.get("keyless.at", number - number % 5))
        return SourceRecord(
            topic=self._topics[number % len(self._topics)],
            key=None if keyless else {"key": f"k{number % 7}-{copy}"},
            key_schema=None if keyless else KEY,
            value=value,
            value_schema=NUMBER,
            partition={"counter": "one"},
            offset={"n": number},
        )

    async def committed(self, offset: Offset) -> None:
        self.committed_offsets.setdefault(self.name, []).append(int(offset["n"]))


class CollectingSink(Sink):
    """Keeps the values it gets, by connector."""

    class_names: ClassVar[tuple[str, ...]] = ("tests.CollectingSinkConnector",)
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(name="refuses", doc="a value that it refuses"),
        Setting(name="away.times", doc="how often it cannot be reached", type="INT"),
    )
    collected: ClassVar[dict[str, list[Any]]] = {}
    away: ClassVar[dict[str, int]] = {}

    async def start(self) -> None:
        self.away.setdefault(self.name, int(self.config.get("away.times", "0")))

    async def write(self, batch: Sequence[SinkRecord]) -> None:
        if self.away[self.name]:
            self.away[self.name] -= 1
            raise Retriable("the outside is away for a moment")
        for index, record in enumerate(batch):
            if str(record.value) == self.config.get("refuses"):
                raise RecordRefused(index, f"{record.value} can never be written")
            self.collected.setdefault(self.name, []).append(record.value)


class _Unsayable(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


class MisbehavingSource(Source):
    """Does in `at` (`__init__`, `start`, `read` or `stop`) what `how` names, which no connector should."""

    class_names: ClassVar[tuple[str, ...]] = ("tests.MisbehavingSourceConnector",)
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(name="how", doc="what it does", required=True),
        Setting(name="at", doc="where it does that", required=True),
    )

    def __init__(self, name: str, config: Config) -> None:
        super().__init__(name, config)
        self._do("__init__")

    def _do(self, where: str) -> None:
        if self.config["at"] != where:
            return
        how = self.config["how"]
        if how == "exit":
            raise SystemExit(7)
        if how == "cancel":
            raise asyncio.CancelledError
        raise {
            "half": RuntimeError("half a character: \ud800"),
            "long": RuntimeError("long " * 1_000_000),
            "unsayable": _Unsayable(),
        }[how]

    async def start(self, offsets: Sequence[tuple[Mapping[str, Any], Offset]]) -> None:
        self._do("start")

    async def read(self) -> Sequence[SourceRecord]:
        self._do("read")
        return []

    async def stop(self) -> None:
        self._do("stop")
