"""What Java's `kafka-metadata-quorum`, `kafka-cluster` and `kafka-configs` print on a broker, beside Apache Kafka 4.3.1: the shape, not ids."""

import re
from collections.abc import Iterator

import pytest

from busway_bus.kernel.inert_configs import REFUSED_PREFIXES
from tests.interop.broker import Broker, chosen_broker, is_apache_chosen
from tests.interop.client_report import ClientReport
from tests.interop.java_tools import ToolsJvm
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.foreign, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]
SAME = """
topics --create --topic shapes
quorum describe --status
quorum describe --replication
quorum describe --replication --human-readable
cluster cluster-id
cluster list-endpoints
cluster list-endpoints --include-fenced-brokers
cluster unregister --id 7
configs --describe --entity-type brokers
configs --alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2,message.max.bytes=2000000
configs --alter --entity-type brokers --entity-default --add-config log.retention.ms=777777,log.cleanup.policy=[compact,delete]
configs --describe --entity-type brokers --entity-name 1
configs --describe --entity-type brokers --entity-default
configs --alter --entity-type brokers --entity-name 1 --add-config node.id=3
configs --alter --entity-type brokers --entity-name 1 --add-config message.max.bytes=x
configs --alter --entity-type brokers --entity-name 1 --delete-config message.max.bytes,made.up
configs --alter --entity-type brokers --entity-default --delete-config log.retention.ms,log.cleanup.policy
configs --describe --entity-type brokers --entity-name 7
configs --describe --broker-defaults
configs --alter --entity-type topics --entity-name shapes --add-config retention.ms=1000,segment.bytes=1048576
configs --describe --topic shapes
configs --alter --entity-type topics --entity-name shapes --add-config retention.ms=abc
configs --alter --entity-type topics --entity-name shapes --delete-config nothing.there,retention.ms
configs --describe --entity-type topics
configs --describe --entity-type topics --entity-name missing
configs --alter --entity-type topics --entity-name missing --add-config retention.ms=1
configs --describe --entity-type groups --entity-name g1
configs --alter --entity-type groups --entity-name g1 --add-config consumer.session.timeout.ms=50000
configs --describe --entity-type groups
configs --alter --entity-type groups --entity-name g1 --add-config made.up=1
configs --describe --entity-type client-metrics
configs --describe --entity-type client-metrics --entity-name m1
""".strip().splitlines()
TO_CONTROLLER = """
quorum describe --status
quorum describe --replication
cluster cluster-id
cluster list-endpoints
cluster list-endpoints --include-fenced-brokers
cluster unregister --id 7
configs --describe --entity-type brokers
configs --alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2,message.max.bytes=2000000
configs --alter --entity-type brokers --entity-default --add-config log.retention.ms=777777
configs --describe --entity-type brokers --entity-name 1
configs --describe --entity-type brokers --entity-default
configs --alter --entity-type brokers --entity-name 1 --delete-config message.max.bytes,log.cleaner.threads
configs --alter --entity-type brokers --entity-default --delete-config log.retention.ms
configs --describe --entity-type brokers --entity-name 7
configs --alter --entity-type topics --entity-name shapes --add-config retention.ms=1000
configs --alter --entity-type topics --entity-name shapes --delete-config retention.ms
configs --describe --entity-type topics --entity-name shapes
configs --describe --entity-type groups --entity-name g1
configs --alter --entity-type groups --entity-name g1 --add-config consumer.session.timeout.ms=50000
configs --alter --entity-type groups --entity-name g1 --delete-config consumer.session.timeout.ms
features upgrade --feature transaction.version=1
features downgrade --feature transaction.version=1 --dry-run
""".strip().splitlines()
"""With `--bootstrap-controller`. Settings of brokers that a broker refuses are refused here too; a controller of Kafka does not check them."""
TO_THE_OTHER = ("quorum describe --status", "cluster list-endpoints", "cluster cluster-id", "features describe")
"""With the address of a broker for a controller, and the other way round."""
REFUSED = {
    "quorum remove-controller --controller-id 7 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ": "support REMOVE_RAFT_VOTER",
    "configs --alter --entity-type brokers --entity-name 1 --add-config made.up=3": "made.up: unknown broker config",
    "configs --alter --entity-type clients --entity-name c1 --add-config producer_byte_rate=1": "support DESCRIBE_CLIENT_QUOTAS",
    "configs --describe --entity-type users": "does not support DESCRIBE_CLIENT_QUOTAS",
    "configs --alter --entity-type users --entity-name u1 --add-config SCRAM-SHA-256=[password=x]": "support ALTER_USER_SCRAM",
    "configs --alter --entity-type ips --entity-name 127.0.0.1 --add-config connection_creation_rate=1": "support DESCRIBE_CLIENT_QUOTAS",
    "configs --alter --entity-type client-metrics --entity-name m1 --add-config interval.ms=1000": "client metrics are not served",
    "configs --describe --entity-type broker-loggers --entity-name 1": "settings of broker loggers are not served",
}
"""Lines that Apache Kafka carries out, and the words that name what is refused here."""
ALL = ("--describe --all --topic shapes", "--describe --all --group g1", "--describe --all --broker 1")


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Broker, Broker]]:
    """The broker under test and Apache Kafka, new."""
    here, kafka = chosen_broker(), ApacheKafka({"group.min.session.timeout.ms": "1000"})
    try:
        here.start()
        kafka.start()
        yield here, kafka
    finally:
        here.stop()
        kafka.stop()


@pytest.fixture(scope="module")
def jvm() -> Iterator[ToolsJvm]:
    """One JVM for all tools."""
    with ToolsJvm() as running:
        yield running


def run(
    jvm: ToolsJvm, broker: Broker, line: str, option: str = "--bootstrap-server", address: str = ""
) -> tuple[int, list[str]]:
    """What a tool ended with and printed, with a word in the place of each id, address, offset and time."""
    tool, *arguments = line.split()
    at = 1 if tool == "cluster" else 0
    code, printed = jvm.run(tool, *arguments[:at], option, address or broker.bootstrap_servers, *arguments[at:])
    shown = printed.replace(broker.bootstrap_servers, "ADDRESS").replace(broker.bootstrap_controllers, "ADDRESS")
    shown = re.sub(r"127\.0\.0\.1\s+\d+", "ADDRESS", shown)
    shown = re.sub(r"(Cluster ID: |ClusterId:\s+)\S{22}", r"\1ID", shown)
    shown = re.sub(r"\b\d{13}\b|\d+ ms ago", "TIME", shown)
    shown = re.sub(r"(AAAAAAAAAAAAAAAAAAAAAA\s+)\d+|(LeaderEpoch:\s+|HighWatermark:\s+)\d+", r"\1\2N", shown)
    return code, [re.sub(r"\s+", " ", part).strip() for part in shown.splitlines() if part.strip()]


def test_what_the_tools_print(both: tuple[Broker, Broker], jvm: ToolsJvm, client_report: ClientReport) -> None:
    """The same on both."""
    for line in SAME:
        here, kafka = (run(jvm, broker, line) for broker in both)
        assert here == kafka, line
    for tool in ("kafka-metadata-quorum", "kafka-cluster", "kafka-configs"):
        client_report.note_tool(tool, "prints what it prints on Apache Kafka")


def test_what_the_tools_print_of_a_controller(
    both: tuple[Broker, Broker], jvm: ToolsJvm, client_report: ClientReport
) -> None:
    """The same on both, by the controller's listener; at the wrong door, too."""
    for broker in both:
        run(jvm, broker, "topics --create --if-not-exists --topic shapes")
    for line in TO_CONTROLLER:
        here, kafka = (
            run(jvm, broker, line, "--bootstrap-controller", broker.bootstrap_controllers) for broker in both
        )
        assert here == kafka, line
    for line in TO_THE_OTHER:
        for option, at_controller in (("--bootstrap-controller", False), ("--bootstrap-server", True)):
            here, kafka = (
                run(jvm, broker, line, option, broker.bootstrap_controllers if at_controller else "") for broker in both
            )
            assert here == kafka or line == "features describe", (line, option)
            assert here[0] == kafka[0]
    for tool in ("kafka-metadata-quorum", "kafka-cluster", "kafka-configs", "kafka-features"):
        client_report.note_tool(tool, "works with --bootstrap-controller as on Apache Kafka")


def test_what_is_not_served_is_refused_by_name(both: tuple[Broker, Broker], jvm: ToolsJvm) -> None:
    """By the tool, where it knows the API and the broker does not, else by the broker."""
    if is_apache_chosen():
        pytest.skip(
            "REFUSED lists what this broker does not serve; Apache Kafka serves it, so that nothing is refused there"
        )
    for line, words in REFUSED.items():
        assert words in " ".join(run(jvm, both[0], line)[1]), line


def test_all_settings(both: tuple[Broker, Broker], jvm: ToolsJvm) -> None:
    """With `--all`: names that both have, but for streams groups, settings of this broker alone, and what is refused at a start."""
    for broker in both:
        run(jvm, broker, "topics --create --if-not-exists --topic shapes")
    for line in ALL:
        here, kafka = ({text.split("=")[0] for text in run(jvm, broker, f"configs {line}")[1]} for broker in both)
        own = {"durability", "log.durability", "busway.insecure", "group.disconnect.grace.ms", "metrics.listener"}
        assert {name for name in here - kafka if not name.startswith("errors.deadletterqueue.")} <= own, line
        refused = tuple(REFUSED_PREFIXES)
        assert [name for name in kafka - here if not name.startswith((*refused, "streams."))] == [], line


def test_a_broker_is_no_controller(both: tuple[Broker, Broker], jvm: ToolsJvm) -> None:
    """`--bootstrap-controller` with a broker's address is refused in Kafka's words."""
    words = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    for line in ("quorum describe --status", "cluster cluster-id", "configs --describe --entity-type brokers"):
        for broker in both:
            code, printed = run(jvm, broker, line, "--bootstrap-controller")
            assert (code, words in " ".join(printed)) == (1, True), line
