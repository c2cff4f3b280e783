"""A broker that goes away and comes back."""

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.support.connect_worker import Rest, records_of, until, worker_config

from busway_bus.testing.local_cluster import LocalCluster
from busway_connect.server import ConnectServer


@pytest.mark.slow
async def test_a_source_goes_on_when_the_broker_is_back(tmp_path: Path) -> None:
    """Stopped in the middle and started again: every record is there once, and the worker was never touched."""
    async with LocalCluster() as cluster:
        config = worker_config(cluster.bootstrap_servers, plugin_modules=("tests.support.connectors",))
        async with ConnectServer(config) as server:
            rest = Rest(server.url)
            await rest.create("count", connector_class="CountingSource", count="30000", topics="numbers")
            await until(lambda: _past(rest, 2000))
            await cluster.stop()
            await cluster.start()
            await until(lambda: _past(rest, 29_999))
            await rest.http.aclose()
        found = Counter(
            json.loads(record.value or b"")["payload"]["n"]
            for record in await records_of(cluster.bootstrap_servers, "numbers")
        )
    assert found == Counter({number: 2 if number % 3 == 0 else 1 for number in range(30_000)})


async def _past(rest: Rest, number: int) -> bool:
    status, found = await rest.call("GET", "/connectors/count/offsets")
    return status == 200 and bool(found["offsets"]) and found["offsets"][0]["offset"]["n"] >= number
