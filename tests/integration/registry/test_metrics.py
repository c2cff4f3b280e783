"""The registry's metrics over HTTP: requests by endpoint, and versions of the database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from busway_registry.config import RegistryConfig
from busway_registry.server import RegistryServer
from busway_registry.store.interface import StoreFailed, Transaction

CONFLUENT = "kafka_schema_registry_"


async def scrape(http: httpx2.AsyncClient) -> dict[tuple[Any, ...], float]:
    """The samples of a page by name and labels."""
    response = await http.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


async def test_requests_and_versions_are_counted() -> None:
    """Under Confluent's names, endpoints too; a refusal is a failure."""
    server = RegistryServer(RegistryConfig(port=0, database="memory:"))
    async with server, httpx2.AsyncClient(base_url=server.url, trust_env=False) as http:
        for subject in ("a/b", "c"):
            path = f"/subjects/{subject.replace('/', '%2F')}/versions"
            assert (await http.post(path, json={"schema": '"string"'})).status_code == 200
        assert (await http.post("/subjects/c/versions", json={"schema": "nonsense"})).status_code == 422
        assert (await http.get("/config")).status_code == 200
        assert (await http.get("/config/c")).status_code == 404
        assert (await http.get("/nowhere")).status_code == 404
        await http.delete("/subjects/c")
        await http.get("/health/ready")
        page = await scrape(http)
        assert page == await scrape(http) | {key: value for key, value in page.items() if key[0].startswith("process_")}
    assert page[f"{CONFLUENT}registered_count",] == page[f"{CONFLUENT}schemas_created", ("schema_type", "avro")] == 2
    assert page[f"{CONFLUENT}schemas_deleted", ("schema_type", "avro")] == 1
    assert (page[f"{CONFLUENT}api_success_count",], page[f"{CONFLUENT}api_failure_count",]) == (4, 3)
    assert page[f"{CONFLUENT}jetty_metrics_connections_active",] == 1
    counted = {
        (dict(key[1:])["endpoint"], dict(key[1:])["status"]): value
        for key, value in page.items()
        if key[0] == "busway_registry_requests_total"
    }
    assert counted == {
        ("subjects.versions.register", "2xx"): 2,
        ("subjects.versions.register", "4xx"): 1,
        ("config.get-global", "2xx"): 1,
        ("config.get-subject", "4xx"): 1,
        ("none", "4xx"): 1,
        ("subjects.delete-subject", "2xx"): 1,
    }
    name = "busway_registry_request_duration_seconds"
    assert page[f"{name}_count", ("endpoint", "subjects.versions.register")] == 3
    assert page[f"{name}_bucket", ("endpoint", "config.get-global"), ("le", "+Inf")] == 1


async def test_without_the_database_the_other_figures_are_there(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape is no failure then."""
    server = RegistryServer(RegistryConfig(port=0, database=f"sqlite+aiosqlite:///{tmp_path}/registry.db"))
    async with server, httpx2.AsyncClient(base_url=server.url, trust_env=False) as http:
        assert (f"{CONFLUENT}registered_count",) in await scrape(http)

        @asynccontextmanager
        async def failing() -> AsyncIterator[Transaction]:
            raise StoreFailed("no route to secret.host")
            yield

        monkeypatch.setattr(server._store, "read", failing)
        page = await scrape(http)
    assert (f"{CONFLUENT}registered_count",) not in page
    assert page[f"{CONFLUENT}api_failure_count",] == 0
