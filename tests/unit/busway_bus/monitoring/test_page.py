"""The metrics page has the figures that it is given."""

from prometheus_client.parser import text_string_to_metric_families

from busway_bus.monitoring import names
from busway_bus.monitoring.figures import Figures
from busway_bus.monitoring.page import render

FIGURES = Figures(
    gauges=tuple(range(len(names.GAUGES))),
    topics={'a"\\\n': (1, 2, 3, 4, 5, 6, 7)},
    totals=(10, 20, 30, 40, 50, 60, 70),
    logs={("t", 3): (1, 2, 3, 4)},
    requests={("Fetch", 12): 9},
    durations={"Fetch": (9, 1.5)},
    connections={"PLAINTEXT": 2},
    groups={("consumer", "Stable"): 8},
)


def samples(page):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_every_figure_is_on_the_page():
    """Under its name, with its labels; those of topics with any text."""
    page = samples(render(FIGURES))
    assert page["kafka_server_kafkaserver_brokerstate",] == 0
    assert page[names.GAUGES[-1].name,] == len(names.GAUGES) - 1
    assert page["kafka_server_brokertopicmetrics_messagesin_total", ("topic", 'a"\\\n')] == 1
    assert page["kafka_server_brokertopicmetrics_failedfetchrequests_total",] == 70
    assert page["kafka_log_log_numlogsegments", ("partition", "3"), ("topic", "t")] == 4
    assert page["kafka_network_requestmetrics_requests_total", ("request", "Fetch"), ("version", "12")] == 9
    assert page["kafka_network_requestmetrics_totaltimems_sum", ("request", "Fetch")] == 1.5
    assert page["kafka_network_requestmetrics_totaltimems_count", ("request", "Fetch")] == 9
    assert page["kafka_server_socket_server_metrics_connection_count", ("listener", "PLAINTEXT")] == 2
    assert page["busway_groups", ("state", "Stable"), ("type", "consumer")] == 8


def test_the_page_has_every_metric_once():
    """Exactly those of `names.METRICS`, and those of the process."""
    shown = [line.split()[2] for line in render(FIGURES).decode().splitlines() if line.startswith("# TYPE")]
    own = [name for name in shown if not name.startswith("process_")]
    assert sorted(own) == sorted(metric.shown for metric in names.METRICS)
