"""docs/METRICS.md lists the metrics that there are, with their types and labels."""

import re
from pathlib import Path

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from busway_bus.monitoring.names import METRICS
from busway_registry.config import RegistryConfig
from busway_registry.server import RegistryServer

PAGE = (Path(__file__).parents[2] / "docs" / "METRICS.md").read_text()
BROKER, _, REGISTRY = PAGE.partition("\n## Registry")


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
    served = {}
    for family in text_string_to_metric_families(text):
        sample = family.samples[0]
        name = sample.name if family.type == "counter" else family.name
        labels = [label for label in sample.labels if label != "le"]
        served[name] = ("untyped" if family.type == "unknown" else family.type, ", ".join(labels))
    beside = re.compile("process_.*|busway_.*_created")  # of prometheus-client
    assert rows(REGISTRY) == {name: kind for name, kind in served.items() if not beside.fullmatch(name)}
