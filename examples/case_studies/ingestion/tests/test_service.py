"""The service on a real bus and registry, over a store that is written by hand as Spark's file sink writes one."""

import asyncio
import dataclasses
import datetime as dt
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ingestion import domain, service, store
from ingestion.domain import apply
from ingestion.events import LowFuel, Position, Truck
from ingestion.generate import drive
from tests.support.programs import spawn_async
from tests.support.variants import with_variants

from busway import App
from busway.testing import TestBus, crash_points
from busway.web import serving

pytestmark = pytest.mark.slow


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[TestBus]:
    """The app on a fresh bus, its store empty."""
    service.layers.folder = tmp_path / service.TOPIC
    async with service.app.test() as running:
        yield running


@pytest.fixture
async def client(bus: TestBus) -> AsyncIterator[httpx2.AsyncClient]:
    """The service over HTTP."""
    async with serving(service.web) as url, httpx2.AsyncClient(base_url=url) as running:
        yield running


async def send(positions: list[Position]) -> None:
    """As the trucks do: from another app."""
    trucks = App("trucks", service.app.bootstrap_servers, service.app.schema_registry)
    topic = trucks.topic(service.TOPIC, key=str, value=Position, partitions=service.PARTITIONS)
    async with trucks:
        await asyncio.gather(*[await topic.send_soon(position, position.truck_id) for position in positions])


def write_batch(folder: Path, number: int, rows: list[dict[str, Any]], *, commit: bool = True) -> None:
    """A micro-batch as the job leaves it: a file, and the log that makes it count."""
    folder.mkdir(exist_ok=True)
    name = f"part-{number:05}.snappy.parquet"
    pq.write_table(pa.Table.from_pylist(rows), folder / name, use_deprecated_int96_timestamps=True)
    if commit:
        (folder / "_spark_metadata").mkdir(exist_ok=True)
        line = json.dumps({"path": f"file:///elsewhere/{service.TOPIC}/{name}", "size": 1, "action": "add"})
        (folder / "_spark_metadata" / str(number)).write_text(f"v1\n{line}\n")


async def rows(bus: TestBus) -> list[dict[str, Any]]:
    """The topic as rows of the store."""
    return [
        {
            **dataclasses.asdict(record.value),
            "_partition": record.partition,
            "_offset": record.offset,
            "_deleted": False,
        }
        for record in await bus.records(service.positions)
        if record.value is not None
    ]


def expected(positions: list[Position]) -> tuple[dict[str, Truck], list[LowFuel]]:
    """Trucks and alerts by the rules, offsets aside."""
    trucks: dict[str, Truck] = {}
    alerts = []
    for offset, position in enumerate(positions):
        trucks[position.truck_id], alert = apply(trucks.get(position.truck_id), position, offset)
        alerts += [alert] if alert else []
    return trucks, alerts


async def test_the_newest_of_each_truck_and_low_fuel(bus: TestBus, client: httpx2.AsyncClient) -> None:
    """Each truck's newest position is shown, and each low tank once."""
    given = list(drive(12, 30, seed=5))
    await send(given)
    await bus.settle()
    trucks, alerts = expected(given)
    assert alerts
    trucks_shown = (await client.get("/trucks")).json()
    assert {truck["truck_id"]: (truck["positions"], truck["newest"]["fuel_percent"]) for truck in trucks_shown} == {
        truck_id: (truck.positions, truck.newest.fuel_percent) for truck_id, truck in trucks.items()
    }
    sent = [record.value for record in await bus.records(service.alerts.topic) if record.value is not None]
    assert sorted((position.truck_id, position.at) for position in sent) == sorted(
        (alert.truck_id, alert.at) for alert in alerts
    )
    assert len((await client.get("/alerts")).json()) == len({alert.truck_id for alert in alerts})
    truck = (await client.get("/trucks/truck-003")).json()
    assert truck["newest"]["latitude"] == trucks["truck-003"].newest.latitude


async def test_history_is_whole_while_the_store_grows_and_after_a_restart(
    bus: TestBus, client: httpx2.AsyncClient
) -> None:
    """Store and stream give each position once, whatever the store has; a file that was not committed does not count."""
    given = list(drive(6, 20, seed=2))
    await send(given)
    await bus.settle()
    wanted = [position.fuel_percent for position in given if position.truck_id == "truck-001"]
    every = await rows(bus)

    async def layers_of(client: httpx2.AsyncClient) -> list[str]:
        history = (await client.get("/trucks/truck-001/history?limit=1000")).json()
        assert [entry["position"]["fuel_percent"] for entry in history["entries"]] == wanted
        assert history["gaps"] == []
        return [entry["layer"] for entry in history["entries"]]

    assert await layers_of(client) == ["stream"] * 20
    first = [row for row in every if row["_offset"] < 7]
    write_batch(service.layers.folder, 0, first)
    write_batch(service.layers.folder, 1, every, commit=False)
    await service.layers.look()
    assert await layers_of(client) == ["store"] * 7 + ["stream"] * 13
    await bus.restart()
    async with serving(service.web) as url, httpx2.AsyncClient(base_url=url) as again:
        await bus.settle()
        assert await layers_of(again) == ["store"] * 7 + ["stream"] * 13
        write_batch(service.layers.folder, 1, [row for row in every if row["_offset"] >= 7])
        await service.layers.look()
        assert await layers_of(again) == ["store"] * 20
        assert sum((await again.get("/store")).json()["waiting"].values()) == 0
        asked = (await again.get("/trucks/truck-001/history?limit=3")).json()
        assert [entry["position"]["fuel_percent"] for entry in asked["entries"]] == wanted[-3:]


async def test_what_memory_had_to_let_go_of_is_told_as_a_gap(bus: TestBus, client: httpx2.AsyncClient) -> None:
    """Without a store the speed layer keeps the newest, and says which offsets are missing."""
    service.layers._recent_most = 5
    try:
        await bus.restart()
        given = list(drive(1, 12))
        await send(given)
        await bus.settle()
        (gap,) = (await service.layers.history("truck-000")).gaps
        assert (gap.start, gap.end, len((await service.layers.history("truck-000")).entries)) == (0, 7, 5)
    finally:
        service.layers._recent_most = domain.RECENT_MOST


@pytest.mark.parametrize("point", with_variants(crash_points(), gate=["before-commit"]))
async def test_a_crash_at_any_step_leaves_trucks_and_alerts_exact(bus: TestBus, point: str) -> None:
    """Each position counts once, each low tank is alerted once, and the history is whole."""
    given = [
        dataclasses.replace(position, fuel_percent=10.0 if turn >= 48 and turn % 2 else 50.0)
        for turn, position in enumerate(drive(8, 12, seed=11))
    ]
    trucks, alerts = expected(given)
    assert len(alerts) == 4
    crash = bus.crash(at=point)
    await send(given)
    await crash
    await bus.settle()
    await bus.restart()
    await bus.settle()
    assert {truck_id: truck.positions for truck_id, truck in service.trucks.items()} == dict.fromkeys(trucks, 12)
    sent = [record.value for record in await bus.records(service.alerts.topic) if record.value is not None]
    assert sorted((position.truck_id, position.at) for position in sent) == sorted(
        (alert.truck_id, alert.at) for alert in alerts
    )
    history = await service.layers.history("truck-005")
    assert [entry.position for entry in history.entries] == [
        position for position in given if position.truck_id == "truck-005"
    ]


async def test_impossible_positions_are_put_aside_and_replayed_after_a_fix(
    bus: TestBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dead letter tells why; once the rule is mended, `busway dlq replay` brings the position to truck and history, once."""
    good, bad = (dataclasses.replace(position, speed_kmh=250.0 * number) for number, position in enumerate(drive(2, 1)))
    await send([bad, good])
    await bus.settle()
    (letter,) = await bus.dead_letters(service.positions)
    assert (letter.attempts, "speed_kmh is 250.0" in letter.error) == (1, True)
    assert set(service.trucks) == {good.truck_id}
    # The store keeps what cannot be true as well; a history does not show it.
    write_batch(service.layers.folder, 0, await rows(bus))
    await service.layers.look()
    assert (await service.layers.history(bad.truck_id)).entries == ()
    monkeypatch.setattr(domain, "FASTEST_KMH", 300.0)
    replay = await spawn_async(
        sys.executable, "-m", "busway.cli", "dlq", "replay", "TRUCK_GPS.ingestion.dlt",
        "--bootstrap-servers", str(bus.app.bootstrap_servers), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await replay.communicate()
    assert replay.returncode == 0, out + errors
    await bus.settle()
    assert service.trucks[bad.truck_id].positions == 1
    assert [entry.position for entry in (await service.layers.history(bad.truck_id)).entries] == [bad]


async def test_what_makes_no_sense_is_refused_with_the_remedy(bus: TestBus, client: httpx2.AsyncClient) -> None:
    """Over HTTP: positions, numbers and trucks that cannot be."""
    body = {"latitude": 48.0, "longitude": 11.0, "speed_kmh": 60.0, "fuel_percent": 40.0}
    assert (await client.post("/trucks/x/positions", json=body)).status_code == 202
    await bus.settle()
    refused = await client.post("/trucks/x/positions", json={**body, "fuel_percent": 140})
    assert (refused.status_code, "from 0 to 100" in refused.json()["error"]) == (422, True)
    for nonsense in (b"{", b"[]", b'{"latitude": 3}', b'{"latitude": "x"}'):
        assert (await client.post("/trucks/x/positions", content=nonsense)).status_code in {400, 422}
    unknown = await client.get("/trucks/nobody")
    assert (unknown.status_code, "GET /trucks lists" in unknown.json()["error"]) == (404, True)
    assert (await client.get("/trucks/x/history?limit=0")).status_code == 422
    assert "TRUCK_GPS" in (await client.get("/")).text


async def test_the_page_hears_of_changes(bus: TestBus, client: httpx2.AsyncClient) -> None:
    """A position arrives as a server-sent event."""
    async with client.stream("GET", "/live") as live:
        lines = live.aiter_lines()
        assert await anext(lines) == "retry: 1000"
        await send(list(drive(1, 1)))
        async for line in lines:
            if line.startswith("data: "):
                assert '"truck_id":"truck-000"' in line
                break


def test_a_compacted_log_of_the_store_counts_once(tmp_path: Path) -> None:
    """Spark folds old logs into one; what came before it is in it, what came after is read beside it."""
    log = tmp_path / "_spark_metadata"
    row = {"_partition": 0, "_offset": 0}
    for number in range(3):
        write_batch(tmp_path, number, [{**row, "_offset": number}])
    lines = [(log / str(number)).read_text().splitlines()[1] for number in range(2)]
    (log / "1.compact").write_text("\n".join(["v1", *lines]) + "\n")
    (log / "1").unlink()
    snapshot = store.newest(tmp_path)
    assert ([path.name[:10] for path in snapshot.files], snapshot.ends) == (
        ["part-00000", "part-00001", "part-00002"],
        {0: 3},
    )
    assert store.newest(tmp_path, snapshot) == snapshot
    (log / "3").write_text("v2\n")
    with pytest.raises(store.BadStore, match="not with v1"):
        store.newest(tmp_path, snapshot)


def test_a_position_of_the_store_is_the_one_that_was_sent(tmp_path: Path) -> None:
    """Times are in UTC, numbers exact."""
    (position,) = drive(1, 1)
    assert position.at.tzinfo is dt.UTC
    write_batch(tmp_path, 0, [{**dataclasses.asdict(position), "_partition": 3, "_offset": 9, "_deleted": False}])
    (entry,) = store.newest(tmp_path).of("truck-000")
    assert (entry.partition, entry.offset, entry.layer, entry.position) == (3, 9, "store", position)
