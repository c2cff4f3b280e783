"""A broker that goes away and comes back."""

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.support.connect_worker import Rest, records_of, worker_config
from tests.support.waiting import until

from busway_bus.testing.local_cluster import LocalCluster
from busway_connect.server import ConnectServer


@pytest.mark.slow
async def test_a_source_goes_on_when_the_broker_is_back(tmp_path: Path) -> None:
    """Stopped in the middle and started again: every record is there once, and the worker was never touched."""
    async with LocalCluster() as cluster:
        config = worker_config(cluster.bootstrap_servers, plugin_modules=("tests.support.connectors",))
        async with ConnectServer(config) as server:
            rest = Rest(server.url)
            # It has no end, so that it is in the middle however fast this machine is, and is stopped behind enough.
            await rest.create("count", connector_class="CountingSource", count=str(10**9), topics="numbers")
            await until(lambda: _past(rest, 2000))
            await cluster.stop()
            await cluster.start()
            again = await _last(rest)
            await until(lambda: _past(rest, again + 2000))
            status, _ = await rest.call("PUT", "/connectors/count/stop")
            assert status == 204
            await rest.wait_for("count", None)
            last = await _last(rest)
            await rest.http.aclose()
        counts = Counter(
            json.loads(record.value or b"")["payload"]["n"]
            for record in await records_of(cluster.bootstrap_servers, "numbers")
        )
    assert counts == Counter({number: 2 if number % 3 == 0 else 1 for number in range(last + 1)})


async def _last(rest: Rest) -> int:
    """The number whose offset is stored; -1 before the first."""
    status, response = await rest.call("GET", "/connectors/count/offsets")
    assert status == 200, response
    return int(response["offsets"][0]["offset"]["n"]) if response["offsets"] else -1


async def _past(rest: Rest, number: int) -> bool:
    return await _last(rest) >= number
