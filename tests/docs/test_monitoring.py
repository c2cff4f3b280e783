"""Dashboards and alert rules of compose/monitoring name metrics and labels that docs/METRICS.md has, and jobs that are scraped."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry, ProcessCollector
from tests.docs.test_metrics import BROKER, REGISTRY, SERVICES, rows

FOLDER = Path(__file__).parents[2] / "compose"
MONITORING = FOLDER / "monitoring"
SCRAPED = {"instance", "job"}
"""Labels that Prometheus adds."""
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
PROMETHEUS = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
ALERTS = [
    rule for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
DASHBOARDS = sorted((MONITORING / "grafana" / "dashboards").glob("*.json"))


def samples() -> dict[str, set[str]]:
    """Labels by name of each sample that there may be."""
    known: dict[str, set[str]] = {"up": set(SCRAPED)}
    for page in (BROKER, REGISTRY, SERVICES):
        for name, (kind, text) in rows(page).items():
            labels = {*filter(None, text.split(", ")), *SCRAPED}
            if kind in {"summary", "histogram"}:
                known[f"{name}_sum"] = known[f"{name}_count"] = labels
            if kind == "histogram":
                known[f"{name}_bucket"] = labels | {"le"}
            elif kind != "summary":
                known[name] = known.get(name, set()) | labels
    of_process = CollectorRegistry()
    ProcessCollector(registry=of_process)
    known |= {sample.name: set(SCRAPED) for family in of_process.collect() for sample in family.samples}
    return known


SAMPLES = samples()


def expressions() -> Iterator[tuple[str, str]]:
    """Expressions of alerts and panels, with where they are."""
    for rule in ALERTS:
        yield rule["alert"], rule["expr"]
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.stem}: {panel['title']}", target["expr"]


def selectors(node: Any) -> Iterator[Any]:
    """The selectors of metrics below an expression."""
    match node:
        case promql_parser.VectorSelector():
            yield node
        case promql_parser.MatrixSelector():
            yield node.vector_selector
        case promql_parser.Call():
            for argument in node.args:
                yield from selectors(argument)
        case promql_parser.BinaryExpr():
            yield from selectors(node.lhs)
            yield from selectors(node.rhs)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return
        case _:  # an aggregation, parentheses, a sign
            yield from selectors(node.expr)


def grouped(node: Any) -> Iterator[tuple[set[str], Any]]:
    """The aggregations below an expression: their labels, and what they aggregate."""
    match node:
        case promql_parser.AggregateExpr():
            if node.modifier is not None:
                yield set(node.modifier.labels), node.expr
            yield from grouped(node.expr)
        case promql_parser.Call():
            for argument in node.args:
                yield from grouped(argument)
        case promql_parser.BinaryExpr():
            yield from grouped(node.lhs)
            yield from grouped(node.rhs)
        case promql_parser.ParenExpr():
            yield from grouped(node.expr)


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_an_expression_names_metrics_and_labels_that_there_are(where: str, expression: str) -> None:
    """It is valid PromQL, too."""
    parsed = promql_parser.parse(expression)
    used = list(selectors(parsed))
    assert used
    for selector in used:
        assert selector.name in SAMPLES, f"{where}: there is no metric {selector.name}"
        named = {matcher.name for matcher in selector.matchers.matchers}
        assert named <= SAMPLES[selector.name], (
            f"{where}: {selector.name} has no label {named - SAMPLES[selector.name]}"
        )
    for labels, aggregated in grouped(parsed):
        for selector in selectors(aggregated):
            assert labels <= SAMPLES[selector.name], f"{where}: {selector.name} has no label {labels}"


def test_jobs_are_scraped() -> None:
    """Those that expressions name are those of prometheus.yml, and its addresses are services of compose.yaml."""
    jobs = {job["job_name"] for job in PROMETHEUS["scrape_configs"]}
    assert {name for _, text in expressions() for name in re.findall(r'job="([^"]+)"', text)} <= jobs
    ports = {"bus": "9404", "registry": "8081"}
    for job in PROMETHEUS["scrape_configs"]:
        for target in job["static_configs"][0]["targets"]:
            service, _, port = target.partition(":")
            command = " ".join(COMPOSE["services"][service]["command"])
            assert port == ports.get(service, "8000")
            assert service == "registry" or port in command
    served = {
        name for name, service in COMPOSE["services"].items() if "--http=" in " ".join(service.get("command", []))
    }
    (targets,) = [
        job["static_configs"][0]["targets"]
        for job in PROMETHEUS["scrape_configs"]
        if job["job_name"] == "busway-service"
    ]
    assert {target.partition(":")[0] for target in targets} == served


def test_an_alert_says_what_is_wrong_and_what_to_do() -> None:
    """Both, with a severity, under a name of its own."""
    names = [rule["alert"] for rule in ALERTS]
    assert len(set(names)) == len(names)
    for rule in ALERTS:
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["description"].endswith(".")


def test_dashboards() -> None:
    """Each has its name as its id, panels that do not overlap, and the data source of a variable."""
    assert [path.stem for path in DASHBOARDS] == ["busway-broker", "busway-registry", "busway-service"]
    for path in DASHBOARDS:
        board = json.loads(path.read_text())
        assert board["uid"] == path.stem
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids)
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            assert panel["datasource"]["uid"] == "${datasource}"
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken
            assert max(x for x, _ in cells) < 24
            taken |= cells
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                (metric,) = re.findall(r"label_values\((\w+), instance\)", variable["query"])
                assert metric in SAMPLES


def test_mounted_files_are_there() -> None:
    """What the profile's containers read, and only they are in the profile."""
    in_profile = {name for name, service in COMPOSE["services"].items() if "monitoring" in service.get("profiles", [])}
    assert in_profile == {"prometheus", "grafana"}
    for name in in_profile:
        for volume in COMPOSE["services"][name]["volumes"]:
            source = volume.partition(":")[0]
            assert (FOLDER / source).exists() if source.startswith("./") else source in COMPOSE["volumes"]
    provider = yaml.safe_load((MONITORING / "grafana" / "dashboards.yml").read_text())
    (where,) = [entry["options"]["path"] for entry in provider["providers"]]
    assert f"./monitoring/grafana/dashboards:{where}:ro" in COMPOSE["services"]["grafana"]["volumes"]
