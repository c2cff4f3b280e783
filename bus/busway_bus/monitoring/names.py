"""Names of the broker's metrics.

Here: name, kind, labels and help of each. Those of Kafka are named as by the JMX exporter's sample rules
(`kafka-2_0_0.yml` with `lowercaseOutputName`).
Not here: values (`figures`), the page (`page`).
"""

from typing import Final, NamedTuple


class Metric(NamedTuple):
    """One metric.

    Attributes:
        name: of a counter without `_total`.
        kind: counter, gauge or summary.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str

    @property
    def shown(self) -> str:
        """The name on the page; a summary's samples append `_count` and `_sum`."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


_TOPICS: Final = "kafka_server_brokertopicmetrics_"
_REPLICAS: Final = "kafka_server_replicamanager_"
_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_GROUPS: Final = "kafka_coordinator_group_groupmetadatamanager_"
_LOG: Final = "kafka_log_log_"
_PARTITION: Final = ("topic", "partition")

TOPIC_COUNTS: Final = (
    Metric(f"{_TOPICS}messagesin", "counter", ("topic",), "Appended records."),
    Metric(f"{_TOPICS}bytesin", "counter", ("topic",), "Bytes of appended batches."),
    Metric(f"{_TOPICS}bytesout", "counter", ("topic",), "Bytes of batches in fetch responses."),
    Metric(f"{_TOPICS}totalproducerequests", "counter", ("topic",), "Partitions of produce requests."),
    Metric(f"{_TOPICS}failedproducerequests", "counter", ("topic",), "Partitions of produce requests, refused."),
    Metric(f"{_TOPICS}totalfetchrequests", "counter", ("topic",), "Reads of partitions for fetch requests."),
    Metric(f"{_TOPICS}failedfetchrequests", "counter", ("topic",), "Reads of partitions that ended with an error."),
)
"""In the order of `PartitionCounters.values`."""
LOG_GAUGES: Final = (
    Metric(f"{_LOG}size", "gauge", _PARTITION, "Bytes of the partition's segments."),
    Metric(f"{_LOG}logstartoffset", "gauge", _PARTITION, "First readable offset."),
    Metric(f"{_LOG}logendoffset", "gauge", _PARTITION, "Offset of the next record."),
    Metric(f"{_LOG}numlogsegments", "gauge", _PARTITION, "Segments."),
)
REQUESTS: Final = Metric("kafka_network_requestmetrics_requests", "counter", ("request", "version"), "Requests.")
DURATIONS: Final = Metric(
    "kafka_network_requestmetrics_totaltimems",
    "summary",
    ("request",),
    "Milliseconds from a received request to its response.",
)
CONNECTIONS: Final = Metric(
    "kafka_server_socket_server_metrics_connection_count", "gauge", ("listener",), "Open connections."
)
GAUGES: Final = (
    Metric("kafka_server_kafkaserver_brokerstate", "gauge", (), "1 starting, 3 running, 7 shutting down."),
    Metric(f"{_REPLICAS}partitioncount", "gauge", (), "Open partitions."),
    Metric(f"{_REPLICAS}leadercount", "gauge", (), "Open partitions that this broker leads."),
    Metric(f"{_REPLICAS}offlinereplicacount", "gauge", (), "Partitions whose log could not be opened."),
    Metric(f"{_REPLICAS}underreplicatedpartitions", "gauge", (), "Led partitions with replicas out of sync."),
    Metric(f"{_REPLICAS}underminisrpartitioncount", "gauge", (), "Led partitions below min.insync.replicas."),
    Metric(f"{_CONTROLLER}activecontrollercount", "gauge", (), "1 on the active controller."),
    Metric(f"{_CONTROLLER}offlinepartitionscount", "gauge", (), "Partitions without a leader."),
    Metric(f"{_CONTROLLER}globaltopiccount", "gauge", (), "Topics of the cluster."),
    Metric(f"{_CONTROLLER}globalpartitioncount", "gauge", (), "Partitions of the cluster."),
    Metric(f"{_GROUPS}numgroups", "gauge", (), "Groups of the classic protocol."),
    Metric(f"{_GROUPS}numgroupspreparingrebalance", "gauge", (), "Classic groups in PreparingRebalance."),
    Metric(f"{_GROUPS}numgroupscompletingrebalance", "gauge", (), "Classic groups in CompletingRebalance."),
    Metric(f"{_GROUPS}numgroupsstable", "gauge", (), "Classic groups in Stable."),
    Metric(f"{_GROUPS}numgroupsdead", "gauge", (), "Classic groups in Dead."),
    Metric(f"{_GROUPS}numgroupsempty", "gauge", (), "Classic groups in Empty."),
)
GROUPS: Final = Metric("busway_groups", "gauge", ("type", "state"), "Groups by protocol and state.")
BUILD: Final = Metric("busway_build_info", "gauge", ("version",), "1.")
METRICS: Final = (*GAUGES, *TOPIC_COUNTS, *LOG_GAUGES, REQUESTS, DURATIONS, CONNECTIONS, GROUPS, BUILD)
"""All metrics of the page but `process_*`, which prometheus-client adds."""
