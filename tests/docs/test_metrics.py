"""docs/METRICS.md lists the metrics that there are, with their types and labels."""

import re
import types
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from busway.app.monitoring.metrics import Metrics
from busway.types import TopicPartition
from busway_bus.monitoring.names import METRICS
from busway_registry.config import RegistryConfig
from busway_registry.server import RegistryServer

PAGE = (Path(__file__).parents[2] / "docs" / "METRICS.md").read_text()
BROKER, _, OTHERS = PAGE.partition("\n## Registry")
REGISTRY, _, SERVICES = OTHERS.partition("\n## Services")
BESIDE = re.compile("process_.*|busway_.*_created")
"""Metrics that prometheus-client adds."""


def rows(text: str) -> dict[str, tuple[str, str]]:
    """Return type and labels by name, of the tables of metrics."""
    table = re.findall(r"^\| `([a-z_]+)` \| ([a-z]+) \| ([a-z_, ]*) \|", text, re.MULTILINE)
    return {name: (kind, labels.strip()) for name, kind, labels in table}


def test_the_page_and_the_broker_name_the_same_metrics() -> None:
    """Neither has one that the other lacks."""
    assert rows(BROKER) == {metric.shown: (metric.kind, ", ".join(metric.labels)) for metric in METRICS}


async def test_the_page_and_the_registry_name_the_same_metrics() -> None:
    """Those of a registry that has registered a schema, the process's aside."""
    server = RegistryServer(RegistryConfig(port=0, database="memory:"))
    async with server, httpx2.AsyncClient(base_url=server.url, trust_env=False) as http:
        await http.post("/subjects/s/versions", json={"schema": '"string"'})
        text = (await http.get("/metrics")).text
    assert unordered(rows(REGISTRY)) == kinds_and_labels(text)


class Transactions(NamedTuple):
    """Counts of an app with exactly_once handlers."""

    committed: int = 1
    aborted: int = 1
    renewed: int = 1


def test_the_page_and_a_service_name_the_same_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kind, with their labels."""
    metrics = Metrics()
    monkeypatch.setattr(metrics, "transactions", Transactions)
    partition = TopicPartition("t", 0)
    metrics.progress.assigned([partition], 0)
    metrics.progress.committed({partition: 1}, 0)
    metrics.progress.ends({partition: 2}, 0)
    monkeypatch.setattr(metrics, "parked", lambda: {partition: 1})
    metrics._build.labels("app", "group", "1").set(1)
    metrics._in_flight.labels("h").inc()
    for outcome in ("retried", "dead_lettered"):
        handling = types.SimpleNamespace(records=1, seconds=1.0)
        metrics._counting("t", "h", outcome)(handling)  # type: ignore[arg-type]
    text = generate_latest(metrics.registry).decode()
    assert unordered(rows(SERVICES)) == kinds_and_labels(text)


def unordered(table: dict[str, tuple[str, str]]) -> dict[str, tuple[str, frozenset[str]]]:
    return {name: (kind, frozenset(filter(None, labels.split(", ")))) for name, (kind, labels) in table.items()}


def kinds_and_labels(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Return type and labels by name, of a page of metrics, each with a sample."""
    served = {}
    for family in text_string_to_metric_families(text):
        sample = family.samples[0]
        name = sample.name if family.type == "counter" else family.name
        labels = frozenset(sample.labels) - {"le"}
        served[name] = ("untyped" if family.type == "unknown" else family.type, labels)
    return {name: kind for name, kind in served.items() if not BESIDE.fullmatch(name)}
