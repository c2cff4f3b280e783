"""The PostgreSQL source, driven without a worker.

Here: a running source that keeps what it reads, as `JsonConverter` writes it.
Not here: databases, brokers.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import psycopg

from busway_connect.connector import Offset, SourceRecord
from busway_connect.converters.json import JsonConverter
from busway_connect.postgres import PostgresConnector
from tests.support.postgres import Postgres

READS_MAX = 400
"""Reads of up to half a second without what is waited for; then the test fails."""


def execute(server: Postgres, *statements: str) -> None:
    """Run statements, each in a transaction of its own."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def settings(server: Postgres, **more: str) -> dict[str, str]:
    """The settings for a server of a test; `more` with `_` for `.`."""
    return {
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "postgres",
        "database.dbname": "postgres",
        "topic.prefix": "p",
        "plugin.name": "pgoutput",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@dataclass(frozen=True, slots=True)
class Json:
    """A record with key and value as JSON with schemas; `value` None is a tombstone."""

    topic: str
    key: Any
    value: Any
    headers: dict[str, bytes | None]


class RunningSource:
    """A source from `start` to `stop`, with everything it handed over.

    Args:
        config: the connector's settings.
        offset: stored by the run before.
    """

    def __init__(self, config: Mapping[str, str], offset: Offset | None = None) -> None:
        self.source = PostgresConnector("test", config)
        self._offset = offset
        self.records: list[SourceRecord] = []

    async def __aenter__(self) -> "RunningSource":
        stored: Sequence[tuple[Mapping[str, Any], Offset]] = []
        if self._offset is not None:
            stored = [({"server": self.source.config["topic.prefix"]}, self._offset)]
        try:
            await self.source.start(stored)
        except BaseException:
            await self.source.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.source.stop()

    async def read_until(self, enough: Callable[[list[SourceRecord]], bool]) -> list[SourceRecord]:
        """Read until what was read is enough; all of it."""
        for _ in range(READS_MAX):
            if enough(self.records):
                return self.records
            self.records += await self.source.read()
        raise AssertionError(f"not enough after {len(self.records)} records")

    async def read_count(self, count: int) -> list[SourceRecord]:
        """Read until there are so many records beside heartbeats."""
        await self.read_until(lambda records: len(changes(records)) >= count)
        return changes(self.records)


def changes(records: Sequence[SourceRecord]) -> list[SourceRecord]:
    """Without heartbeats."""
    return [record for record in records if not record.topic.startswith("__debezium-heartbeat")]


async def as_json(records: Sequence[SourceRecord]) -> list[Json]:
    """As `JsonConverter` with schemas writes them."""
    keys, values = JsonConverter({}, is_key=True), JsonConverter({}, is_key=False)
    rows = []
    for record in records:
        key = await keys.from_connect(record.topic, record.key_schema, record.key)
        value = await values.from_connect(record.topic, record.value_schema, record.value)
        rows.append(
            Json(
                record.topic,
                None if key is None else json.loads(key),
                None if value is None else json.loads(value),
                dict(record.headers),
            )
        )
    return rows
