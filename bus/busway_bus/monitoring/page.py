"""The metrics page: figures as Prometheus' text format 0.0.4.

Here: text from copied numbers, safe in another thread.
Not here: names (`names`), reading the node (`figures`). It imports prometheus_client, of the metrics extra.
"""

from collections.abc import Iterable
from importlib.metadata import version
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from busway_bus.monitoring import names
from busway_bus.monitoring.figures import Figures

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def render(figures: Figures) -> bytes:
    """Return the page's text. It takes about 10 µs for each sample."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(figures))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Page(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Family]:
        figures = self._figures
        for metric, value in zip(names.GAUGES, figures.gauges, strict=True):
            yield _family(metric, [((), value)])
        for at, metric in enumerate(names.TOPIC_COUNTS):
            family = _family(metric, (((topic,), counts[at]) for topic, counts in figures.topics.items()))
            family.add_sample(metric.shown, {}, figures.totals[at])
            yield family
        for at, metric in enumerate(names.LOG_GAUGES):
            yield _family(metric, (((topic, str(index)), log[at]) for (topic, index), log in figures.logs.items()))
        requests = (((name, str(number)), count) for (name, number), count in figures.requests.items())
        yield _family(names.REQUESTS, requests)
        yield self._durations()
        yield _family(names.CONNECTIONS, (((listener,), count) for listener, count in figures.connections.items()))
        yield _family(names.GROUPS, figures.groups.items())
        yield _family(names.BUILD, [((version("busway"),), 1)])

    def _durations(self) -> Family:
        metric = names.DURATIONS
        family = _family(metric, ())
        for name, (count, milliseconds) in self._figures.durations.items():
            family.add_sample(f"{metric.name}_count", {"request": name}, count)
            family.add_sample(f"{metric.name}_sum", {"request": name}, milliseconds)
        return family


def _family(metric: names.Metric, samples: Iterable[tuple[tuple[str, ...], float]]) -> Family:
    family = Family(metric.name, metric.help, metric.kind)
    for labels, value in samples:
        family.add_sample(metric.shown, dict(zip(metric.labels, labels, strict=True)), value)
    return family
