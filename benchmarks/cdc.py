"""`python -m benchmarks.cdc`: our PostgreSQL connector beside Debezium 3.7.0 on Kafka Connect, in turns, on the same server and bus.

Here: both connectors' runs, the clock, the table.
Not here: whether they write the same (`tests/conformance/connect_postgres`). Each run is a worker in a process of its
own with `JsonConverter` without schemas. A rate is taken from the first record in the topic to the last, so that the
start of a JVM does not count; the ratio is taken in each round, and the median shown.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
from tests.support.debezium import Debezium
from tests.support.postgres import Postgres
from tools.jars import ROOT, ToolMissing

from benchmarks.machine import describe
from busway import Admin, BrokerError, TopicPartition
from busway_bus.testing.local_cluster import LocalCluster

POLL_S = 0.02
WAIT_S = 300.0
_JVM = ("-Xms256m", "-Xmx2g", "-XX:+UseG1GC")
"""Kafka Connect's own start script."""
_CONVERTERS = {
    f"{what}.converter{name}": value
    for what in ("key", "value")
    for name, value in (("", "org.apache.kafka.connect.json.JsonConverter"), (".schemas.enable", "false"))
}
_TABLE = "CREATE TABLE t (id bigserial PRIMARY KEY, account int NOT NULL, name text, amount numeric(12,2), at timestamptz, note varchar(80))"
_ROWS = (
    "INSERT INTO t (account, name, amount, at, note) SELECT n % 1000, 'name ' || n, n / 100.0, now(), md5(n::text)"
    " FROM generate_series(1, {}) n"
)


@contextlib.contextmanager
def _ours(bootstrap: str, connector: dict[str, str]) -> Iterator[None]:
    """A worker of ours with this connector."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-m", "busway.cli", "connect", "-b", bootstrap, "--port", "0", "--json"]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        with log.open("wb") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, env=environment)
        try:
            _create(process, connector)
            yield
        finally:
            process.terminate()
            process.wait()


def _create(process: "subprocess.Popen[bytes]", connector: dict[str, str]) -> None:
    import json

    import httpx2

    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["connect"]
    answer = httpx2.post(f"{url}/connectors", json={"name": "ours", "config": connector}, timeout=30)
    assert answer.status_code == 201, answer.text


@contextlib.contextmanager
def _theirs(bootstrap: str, connector: dict[str, str]) -> Iterator[None]:
    """Debezium on a standalone worker."""
    worker = {name: value for name, value in connector.items() if ".converter" in name}
    with Debezium(bootstrap, connector, worker, options=_JVM):
        yield


async def _count(admin: Admin, topic: str) -> int:
    try:
        return (await admin.list_offsets({TopicPartition(topic, 0): -1}))[TopicPartition(topic, 0)]
    except BrokerError:
        return 0


async def _rate(admin: Admin, topic: str, base: int, rows: int) -> float:
    """Rows/s from the first that is there to the last."""
    first: tuple[float, int] | None = None
    end = time.monotonic() + WAIT_S
    while True:
        count = await _count(admin, topic) - base
        now = time.monotonic()
        if count > 0 and first is None:
            first = (now, count)
        if count >= rows:
            assert first is not None
            return (rows - first[1]) / max(now - first[0], POLL_S)
        assert now < end, f"{count} of {rows} records after {WAIT_S} s"
        await asyncio.sleep(POLL_S)


async def _run(
    server: Postgres,
    name: str,
    start: Callable[[str, dict[str, str]], contextlib.AbstractContextManager[None]],
    rows: int,
) -> tuple[float, float]:
    """(snapshot, stream) in rows/s."""
    connector = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "postgres",
        "database.password": "none",
        "database.dbname": "postgres",
        "topic.prefix": name,
        "slot.name": name,
        "slot.drop.on.stop": "true",
        "plugin.name": "pgoutput",
        **_CONVERTERS,
    }
    async with LocalCluster() as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        context = start(cluster.bootstrap_servers, connector)
        await asyncio.to_thread(context.__enter__)
        try:
            topic = f"{name}.public.t"
            snapshot = await _rate(admin, topic, 0, rows)
            await asyncio.to_thread(_execute, server, _ROWS.format(rows))
            return snapshot, await _rate(admin, topic, rows, rows)
        finally:
            await asyncio.to_thread(context.__exit__, None, None, None)
            await asyncio.to_thread(_execute, server, f"DELETE FROM t WHERE id > {rows}")


def _execute(server: Postgres, *statements: str) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def main(arguments: list[str]) -> int:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m benchmarks.cdc", description=__doc__.split("\n", maxsplit=1)[0]
    )
    parser.add_argument(
        "--rows", type=int, default=50_000, help="rows of the table, and of one transaction of the stream"
    )
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args(arguments)
    samples: dict[str, list[tuple[float, float]]] = {"ours": [], "debezium": []}
    with Postgres() as server:
        _execute(server, _TABLE, _ROWS.format(chosen.rows))
        for _ in range(chosen.rounds):
            for name, start in (("ours", _ours), ("debezium", _theirs)):
                samples[name].append(asyncio.run(_run(server, name, start, chosen.rows)))
    print(describe())
    print(f"{'rows/s':<10} {'Busway':>10} {'Debezium':>10} {'ratio':>7}")
    for place, phase in enumerate(("snapshot", "stream")):
        ours = [sample[place] for sample in samples["ours"]]
        theirs = [sample[place] for sample in samples["debezium"]]
        ratio = statistics.median(own_s / other for own_s, other in zip(ours, theirs, strict=True))
        print(f"{phase:<10} {statistics.median(ours):>10,.0f} {statistics.median(theirs):>10,.0f} {ratio:>7.2f}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ToolMissing as missing:
        sys.stderr.write(f"{missing}\n")
        sys.exit(1)
