"""Debezium 3.7.0 and our connector watch the same database; what they hand over is compared record by record, schemas included.

What must differ is put aside: the time of processing, `source.version`, the `runId` of a run, and for rows of the snapshot the moment,
LSN and transaction, as each has a slot of its own. What differs beyond that, on purpose:

- `numeric` with a negative scale: Debezium 3.7.0 takes PostgreSQL 15's -2 for 2046; ours is a whole number with scale 0.
- `name` in the stream: Debezium gives null, ours the value, as both do in the snapshot.
- `date` before Christ or infinite in the snapshot: Debezium's differs from what its stream gives; ours is as in the stream.
- `date[]` with infinite dates: Debezium's overflow to a third number; ours is as in a column.
- `time[]`: Debezium loses the microseconds.
- an enum's new label: Debezium takes it into the schema of a column, and not into that of an array; ours into both.
- elements of an enum's array, or of an array of a type not known: Debezium declares them as required, so that a NULL among them ends its
  task; ours are optional.
- an array with several dimensions: Debezium gives nulls, ours its elements one after the other.
- `bit(n)[]`: Debezium declares one bit string and gives null; ours is an array of bit strings.
- an unchanged TOASTed `bytea` with binary.handling.mode=base64: Debezium gives null, ours the placeholder (not compared here).
"""

import asyncio
import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.captured_tables import AFTER, BEFORE, SETUP
from tests.support.debezium import Debezium
from tests.support.patience import patient
from tests.support.postgres import Postgres
from tests.support.postgres_source import Json, RunningSource, as_json, changes, execute, settings

from busway import Admin, Consumer, Record, TopicPartition
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = [pytest.mark.java, pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(300)]
WAIT_S = patient(90.0)
LAST_TABLE = "zz_marker"
Topics = dict[str, list[Json]]
CONFIGS: dict[str, dict[str, str]] = {
    "default": {},
    "strings": {
        "decimal.handling.mode": "string",
        "interval.handling.mode": "string",
        "hstore.handling.mode": "map",
        "time.precision.mode": "connect",
        "binary.handling.mode": "hex",
        "include.unknown.datatypes": "true",
    },
    "doubles": {
        "decimal.handling.mode": "double",
        "time.precision.mode": "adaptive_time_microseconds",
        "binary.handling.mode": "base64",
        "message.key.columns": "public.toast:d,a;public.no_key:b",
        "tombstones.on.delete": "false",
        "column.exclude.list": "public.required.r_.*8,public.toast.[cf]",
        "skipped.operations": "none",
    },
    "masked": {
        "column.truncate.to.3.chars": "public.defaults.d_(text|varchar|char|uuid|jsonb?|mood|inet|xml|citext|name|timestamptz),public.toast.b,public.changing.b",
        "column.mask.with.5.chars": "public.every_type.[ac]_.*,public.required.r_.*,public.toast.[cdefi]",
        "column.mask.hash.SHA-256.with.salt.CzQMA0cB5K": "public.identity_full.*,public.two_keys.[ac],public.toast.g",
        "column.mask.hash.v2.MD5.with.salt.s.a": ".*Other Space.*,public.toast.h,public.parent.*",
        "schema.name.adjustment.mode": "avro_unicode",
        "field.name.adjustment.mode": "avro",
    },
}


@dataclass(frozen=True, slots=True)
class Both:
    """What each handed over, by topic."""

    debezium: Topics
    ours: Topics


class Watched:
    """The topics that Debezium writes, read from the beginning to their end."""

    def __init__(self, bootstrap_servers: str, debezium: Debezium) -> None:
        self._bootstrap = bootstrap_servers
        self._debezium = debezium
        self.records: list[Record] = []

    async def until(self, enough: Callable[[Record], bool]) -> None:
        """Read everything again and again until a record is there that is enough."""
        async with asyncio.timeout(WAIT_S):
            while not any(enough(record) for record in self.records):
                self._debezium.check()
                self.records = await self._all()
            self.records = await self._all()  # what came before it may have been written to other topics after it

    async def _all(self) -> list[Record]:
        async with (
            Admin(bootstrap_servers=self._bootstrap) as admin,
            Consumer(bootstrap_servers=self._bootstrap, auto_offset_reset="earliest") as consumer,
        ):
            partitions = [TopicPartition(name, 0) for name in await admin.list_topics() if name.startswith("p.")]
            await consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            records_of: dict[TopicPartition, list[Record]] = {partition: [] for partition in partitions}
            while any(len(records_of[partition]) < end for partition, end in ends.items()):
                for partition, records in (await consumer.getmany(timeout_ms=200)).items():
                    records_of[partition] += records
            return [record for records in records_of.values() for record in records]


async def _watch(server: Postgres, config: dict[str, str]) -> Both:
    async with LocalCluster() as cluster:
        theirs = {
            **settings(server, slot_name="theirs"),
            **config,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "poll.interval.ms": "10",
            "database.password": "none",
        }
        ours = {**settings(server, slot_name="ours"), **config}
        with Debezium(cluster.bootstrap_servers, theirs) as debezium:
            watched = Watched(cluster.bootstrap_servers, debezium)
            await watched.until(lambda record: b'"snapshot":"last"' in (record.value or b""))
            async with RunningSource(ours) as run:
                await run.read_until(lambda records: any(_mark(record.value) == "last" for record in changes(records)))
                await _change(server, run, watched)
                our_records = changes(run.records)
    debezium_topics: Topics = defaultdict(list)
    for record in watched.records:
        debezium_topics[record.topic].append(_parsed(record))
    our_topics: Topics = defaultdict(list)
    for converted in await as_json(our_records):
        our_topics[converted.topic].append(converted)
    return Both(debezium=debezium_topics, ours=our_topics)


def _mark(value: Any) -> str | None:
    return None if value is None else value["source"]["snapshot"]


async def _change(server: Postgres, run: RunningSource, watched: Watched) -> None:
    """Run the statements; both read the catalogue late, so before each change of a definition both must have seen what came before."""
    seen = 0
    for number, statement in enumerate(AFTER, 1):
        if statement.startswith(("ALTER", "BEGIN", "UPDATE toast SET d")) or "ALTER" in AFTER[number - 2]:
            await _seen(server, run, watched, number)
            seen = number
        execute(server, statement)
    assert seen
    await _seen(server, run, watched, len(AFTER) + 1)


async def _seen(server: Postgres, run: RunningSource, watched: Watched, number: int) -> None:
    execute(server, f"INSERT INTO {LAST_TABLE} VALUES ({number})")
    await run.read_until(
        lambda records: any(
            record.topic == f"p.public.{LAST_TABLE}" and record.key == {"a": number} for record in records[-3:]
        )
    )
    wanted = b'"payload":{"a":%d}' % number
    await watched.until(lambda record: record.topic == f"p.public.{LAST_TABLE}" and wanted in (record.key or b""))


def _parsed(record: Record) -> Json:
    import json

    key = None if record.key is None else json.loads(record.key)
    value = None if record.value is None else json.loads(record.value)
    return Json(record.topic, key, value, dict(record.headers))


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    """What both made of the same database, under each set of settings."""
    with Postgres() as server:
        execute(server, *SETUP, f"CREATE TABLE {LAST_TABLE} (a int PRIMARY KEY)", *BEFORE)
        execute(server, f"INSERT INTO {LAST_TABLE} VALUES (0)")
        yield asyncio.run(_watch(server, CONFIGS[request.param]))


_AT = ("ts_ms", "ts_us", "ts_ns")
_OF_THE_SNAPSHOT = ("lsn", "txId", "sequence")


def _aside(record: Json) -> Json:
    """Without what must differ."""
    value = copy.deepcopy(record.value)
    if value is not None:
        payload = value["payload"]
        payload |= dict.fromkeys(_AT)
        payload["source"]["version"] = None
        if payload["op"] == "r":
            payload["source"] |= dict.fromkeys((*_AT, *_OF_THE_SNAPSHOT))
    headers = {name: data for name, data in record.headers.items() if name != "__debezium.context.runId"}
    return Json(record.topic, record.key, value, headers)


_LOST_BY_DEBEZIUM = ("c_negative_scale", "c_name", "d_name", "a_int4_2d", "a_bit", "a_time")
_DECLARED_OTHERWISE = ("c_negative_scale", "a_bit", "a_mood", "a_email")
_USUAL_DAYS = range(-800_000, 800_000)


def _known(record: Json) -> Json:
    """Without what differs on purpose; see the module."""
    if record.value is None or record.topic not in ("p.public.every_type", "p.public.defaults"):
        return record
    payload, schema = record.value["payload"], record.value["schema"]
    for side in (payload["before"], payload["after"]):
        if side is None:
            continue
        for column in _LOST_BY_DEBEZIUM:
            side.pop(column, None)
        if payload["op"] == "r" and (side.get("c_date") or 0) not in _USUAL_DAYS:
            del side["c_date"]
        if any(day not in _USUAL_DAYS for day in side.get("a_date") or ()):
            del side["a_date"]
    for field in schema["fields"][:2]:
        field["fields"] = [column for column in field["fields"] if column["field"] not in _DECLARED_OTHERWISE]
    return record


def test_both_write_the_same_topics_with_as_many_records(both: Both) -> None:
    """Every table has its topic in both, with the same number of records.

    But for a partitioned table whose partitions are captured too: Debezium's snapshot has each of its rows twice, once under its name, under
    which no change ever comes.
    """
    twice = "p.public.parent"
    assert both.debezium.get(twice)
    assert not both.ours.get(twice)
    assert {name: len(records) for name, records in both.ours.items() if records} == {
        name: len(records) for name, records in both.debezium.items() if name != twice
    }


def test_every_record_is_the_same(both: Both) -> None:
    """Keys, values, schemas and headers agree, record by record."""
    differences = []
    for topic, theirs in both.debezium.items():
        for number, (their_record, other) in enumerate(zip(theirs, both.ours[topic], strict=False)):
            expected, actual = _known(_aside(their_record)), _known(_aside(other))
            differences += [f"{topic} {number} {text}" for text in _differences(expected, actual)]
    assert not differences, "\n".join(differences[:60])


def _differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    if isinstance(expected, Json):
        yield from _differences(expected.key, actual.key, "key")
        yield from _differences(expected.value, actual.value, "value")
        yield from _differences(expected.headers, actual.headers, "headers")
    elif isinstance(expected, dict) and isinstance(actual, dict):
        for name in {**expected, **actual}:
            if name not in expected or name not in actual:
                yield f"{path}.{name}: {'only ours' if name in actual else 'only theirs'}"
            else:
                yield from _differences(expected[name], actual[name], f"{path}.{name}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for number, (expected_item, other) in enumerate(zip(expected, actual, strict=True)):
            label = expected_item.get("field", number) if isinstance(expected_item, dict) else number
            yield from _differences(expected_item, other, f"{path}[{label}]")
    elif expected != actual:
        yield f"{path}: Debezium {str(expected)[:150]!r}, ours {str(actual)[:150]!r}"
