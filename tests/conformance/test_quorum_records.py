"""The control record with which a leader begins its epoch is Kafka's: by definition, and as Kafka's own tool reads it."""

import json
import re
import zipfile
from pathlib import Path

import pytest
from tests.conformance.test_definitions import compare
from tests.support.apache_kafka import java
from tools.jars import kafka_libs

from busway_bus.quorum.election_file import election_text
from busway_bus.quorum.records import LeaderChangeMessage, leader_change
from busway_bus.quorum.states import NOBODY, Election
from busway_protocol.records.batch import assign_offset
from busway_protocol.schema import info_of

pytestmark = pytest.mark.java

DUMP = "org.apache.kafka.tools.DumpLogSegments"


def test_the_definition_equals_kafkas() -> None:
    """Field by field."""
    with zipfile.ZipFile(kafka_libs() / "kafka-clients-4.3.1.jar") as jar:
        text = jar.read("common/message/LeaderChangeMessage.json").decode()
    theirs = json.loads("\n".join(re.sub(r"(^|[\s,\]}])//.*$", r"\1", line) for line in text.splitlines()))
    shared = {struct["name"]: struct["fields"] for struct in theirs["commonStructs"]}
    assert (info_of(LeaderChangeMessage).min_version, info_of(LeaderChangeMessage).max_version) == (0, 1)
    assert list(compare(LeaderChangeMessage, theirs["fields"], shared, 0, 1, "LeaderChangeMessage")) == []


def test_the_election_on_disk_has_kafkas_fields() -> None:
    """In their order, and the version behind them; Kafka reads no file in which one is missing."""
    with zipfile.ZipFile(kafka_libs() / "kafka-raft-4.3.1.jar") as jar:
        text = jar.read("common/message/QuorumStateData.json").decode()
    theirs = json.loads("\n".join(line for line in text.splitlines() if not line.startswith("//")))
    names = [field["name"] for field in theirs["fields"] if field["versions"] != "0"]
    ours = list(json.loads(election_text(Election())))
    assert ours == [*(f"{name[0].lower()}{name[1:]}" for name in names), "data_version"]
    defaults = {field["name"]: int(field["default"]) for field in theirs["fields"] if "default" in field}
    assert defaults == {"LeaderId": NOBODY, "LeaderEpoch": -1, "VotedId": NOBODY}


@pytest.mark.slow
def test_kafkas_tool_reads_it(tmp_path: Path) -> None:
    """In a segment of the metadata log."""
    segment = tmp_path / "__cluster_metadata-0" / f"{0:020d}.log"
    segment.parent.mkdir()
    batch = bytearray(leader_change(1, (1, 2, 3), (1, 3), 1_700_000_000_000))
    assign_offset(batch, base_offset=0, leader_epoch=7)
    segment.write_bytes(batch)
    output = java(DUMP, "--cluster-metadata-decoder", "--files", str(segment))
    (line,) = [line for line in output.splitlines() if line.startswith("| ")]
    assert "LeaderChange" in line
    change = json.loads(line[line.index("{") :])
    assert (change["leaderId"], [voter["voterId"] for voter in change["grantingVoters"]]) == (1, [1, 3])
    assert [voter["voterId"] for voter in change["voters"]] == [1, 2, 3]
