"""The profile `monitoring` of compose.yaml: Prometheus reads a broker, and evaluates every rule and expression.

Here: Prometheus.
Not here: Grafana, which shows the same expressions.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from tests.compose.stack import Stack
from tests.docs.test_monitoring import ALERTS, expressions
from tests.support.patience import patient
from tests.support.waiting import until

pytestmark = [pytest.mark.compose, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def monitored() -> Iterator[Stack]:
    """A bus and Prometheus, healthy."""
    with Stack("compose.yaml", services=("bus", "prometheus"), profile="monitoring") as running:
        yield running


async def test_prometheus_reads_the_broker_and_evaluates_the_rules(monitored: Stack) -> None:
    """Those of services that do not run here are pending or fire; none is an error."""
    async with httpx2.AsyncClient(
        base_url=monitored.url("PROMETHEUS"), timeout=patient(20), trust_env=False
    ) as prometheus:

        async def asked(path: str) -> Any:
            return (await prometheus.get(f"/api/v1/{path}")).json()["data"]

        async def rules() -> list[dict[str, Any]]:
            return [rule for group in (await asked("rules"))["groups"] for rule in group["rules"]]

        async def reads() -> bool:
            result = (await asked('query?query=up{job="busway-broker"}'))["result"]
            return [sample["value"][1] for sample in result] == ["1"]

        async def evaluated() -> bool:
            return all(rule["health"] != "unknown" for rule in await rules())

        await until(reads, seconds=60, pause_s=0.5)
        await until(evaluated, seconds=60, pause_s=0.5)
        assert {rule["name"]: rule["health"] for rule in await rules()} == {rule["alert"]: "ok" for rule in ALERTS}
        assert len((await asked("query?query=busway_build_info"))["result"]) == 1
        for where, expression in expressions():
            answer = (await prometheus.get("/api/v1/query", params={"query": expression})).json()
            assert answer["status"] == "success", (where, answer)
    await asyncio.to_thread(monitored.healthy, "bus", "prometheus")
