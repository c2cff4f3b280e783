"""Apache Kafka's `kafka-features` on a broker and on Apache Kafka 4.3.1: what it prints is the same, and levels outlive a kill."""

import re
import subprocess
from collections.abc import Iterator

import pytest

from busway_bus.metadata.features import KAFKAS, NOT_SERVED, SUPPORTED
from tests.interop.broker import Broker, chosen_broker, is_apache_chosen
from tests.interop.client_report import ClientReport
from tests.support.apache_kafka import ApacheKafka, java_command
from tests.support.patience import patient

pytestmark = [pytest.mark.foreign, pytest.mark.java, pytest.mark.slow]
TOOL = "org.apache.kafka.tools.FeatureCommand"
BOTH = ("group.version", "metadata.version", "transaction.version")
STEPS = (
    ("upgrade --feature transaction.version=2 --dry-run", "transaction.version can be upgraded to 2."),
    ("upgrade --feature transaction.version=3", "Local controller 1 only supports versions 0-2"),
    ("upgrade --feature made.up=1", "Local controller 1 does not support this feature."),
    ("upgrade --feature transaction.version=1", "Can't downgrade the version of this feature without setting"),
    ("downgrade --feature transaction.version=1 --dry-run", "transaction.version can be downgraded to 1."),
    ("downgrade --feature transaction.version=1", "transaction.version was downgraded to 1."),
    ("downgrade --metadata 4.0-IV0", "it might delete metadata information"),
    ("downgrade --feature metadata.version=29 --unsafe", "Unsafe metadata downgrade is not supported in this version."),
    ("disable --feature group.version --feature transaction.version", "group.version was disabled."),
    ("upgrade --feature group.version=1 --feature transaction.version=9", "2 out of 2 operation(s) failed."),
    ("upgrade --release-version 9.9-IV0", "Unknown metadata.version '9.9-IV0'."),
    ("disable --feature streams.version --feature kraft.version --dry-run", "streams.version can be disabled."),
    ("version-mapping", "transaction.version=2"),
    ("version-mapping --release-version 4.0-IV3", "streams.version=0"),
    ("feature-dependencies --feature eligible.leader.replicas.version=1", "metadata.version=23 (4.0-IV1)"),
    ("feature-dependencies --feature transaction.version=2", "has no dependencies."),
)


@pytest.fixture
def both() -> Iterator[tuple[Broker, Broker]]:
    """The broker under test and Apache Kafka, new."""
    busway_broker, theirs = chosen_broker(), ApacheKafka()
    try:
        busway_broker.start()
        theirs.start()
        yield busway_broker, theirs
    finally:
        busway_broker.stop()
        theirs.stop()


def run(broker: Broker, line: str) -> tuple[int, str]:
    """What the tool ended with and printed."""
    command = java_command(TOOL, "--bootstrap-server", broker.bootstrap_servers, *line.split())
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(120), check=False)
    return done.returncode, done.stdout + done.stderr


def described(broker: Broker) -> tuple[dict[str, tuple[str, ...]], int]:
    """Lowest, highest and finalized level of each feature, and the epoch."""
    code, text = run(broker, "describe")
    assert code == 0, text
    rows = [re.split(r"\s*\w+: ", line)[1:] for line in text.splitlines() if line.startswith("Feature:")]
    levels = {row[0].strip(): tuple(cell.strip() for cell in row[1:4]) for row in rows}
    return levels, int(rows[0][4])


def test_kafka_features(both: tuple[Broker, Broker], client_report: ClientReport) -> None:
    """Described, raised, lowered, turned off, refused, checked alone; described again after a kill."""
    for line, expected in STEPS:
        ours, theirs = (run(broker, line) for broker in both)
        assert ours == theirs, line
        assert expected in ours[1], line
    (here, _), (kafka, _) = map(described, both)
    assert {name: kafka[name] for name in BOTH} == {name: here[name] for name in BOTH}
    assert set(kafka) == KAFKAS
    if not is_apache_chosen():
        assert set(here) == set(SUPPORTED)
        assert here["share.version"] == ("0", "2", "1")
        for name, reason in NOT_SERVED.items():
            code, text = run(both[0], f"upgrade --feature {name}=1")
            assert (code, text.count("\n")) == (1, 2)  # no stack trace
            assert reason in text
        code, text = run(both[0], "upgrade --release-version 4.3-IV0")
        assert code == 1
        assert NOT_SERVED["kraft.version"] in text
    for broker in both:
        levels, epoch = described(broker)
        assert levels["group.version"] == ("0", "1", "0")
        assert levels["transaction.version"] == ("0", "2", "0")
        broker.kill()
        broker.start()
        again, later = described(broker)
        assert again == levels
        assert later >= epoch
    assert run(both[0], "upgrade --feature group.version=1 --feature transaction.version=2")[0] == 0
    levels, _ = described(both[0])
    assert {name: levels[name] for name in BOTH} == {
        "group.version": ("0", "1", "1"),
        "metadata.version": ("3.3-IV3", "4.3-IV0", "4.3-IV0"),
        "transaction.version": ("0", "2", "2"),
    }
    client_report.note_tool(
        "kafka-features", "describe, upgrade, downgrade, disable, version-mapping, feature-dependencies"
    )
