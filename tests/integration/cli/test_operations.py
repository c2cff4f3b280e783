"""`busway status` and `busway top` against `busway up`, and rows of clusters that one node cannot have."""

import json
import signal

import pytest
from tests.integration.cli.conftest import SECONDS, Up, run, start

from busway.admin.cluster import ClusterDescription
from busway.cli.status import _broker_rows, _topic_row, _troubled_rows
from busway.cluster.metadata import PartitionInfo, TopicInfo

pytestmark = pytest.mark.slow


def test_status(up: Up) -> None:
    """Brokers, topics, groups with their lag, and the registry; as text and as JSON."""
    up.run("topics", "create", "s1", "-p", "2")
    up.run("produce", "s1", "one", "-k", "k")
    up.run("consume", "s1", "--from-beginning", "-n", "1", "--group", "s1-readers")
    up.run("produce", "s1", "two", "-k", "k")
    facts = up.run("status", "--json").json
    assert [broker["port"] for broker in facts["brokers"]] == [int(up.bootstrap.rpartition(":")[2])]
    assert facts["controller"] == facts["brokers"][0]["broker"]
    assert facts["registry"] == {"url": up.registry, "subjects": 0, "problem": None}
    (topic,) = [row for row in facts["topics"] if row["topic"] == "s1"]
    assert topic == {
        "topic": "s1",
        "partitions": 2,
        "replicas": 1,
        "under_replicated": 0,
        "offline": 0,
        "end_offsets": 2,
    }
    (group,) = [row for row in facts["groups"] if row["group"] == "s1-readers"]
    assert (group["topics"], group["lag"], group["state"]) == (["s1"], 1, "Empty")
    assert facts["partitions_in_trouble"] == []
    assert "__consumer_offsets" in str(up.run("status", "--internal", "--json").json["topics"])
    text = up.run("status").out
    assert f"registry  {up.registry}, 0 subjects\n" in text
    assert "offline 0, under-replicated 0" in text
    assert "s1-readers\tconsumer\tEmpty\ts1\t1" in text.splitlines()


def test_status_without_a_registry_or_broker(up: Up) -> None:
    """A registry that does not answer is a fact beside others; brokers that do not are an error."""
    done = run("status", "--json", "-b", up.bootstrap, "-r", "http://127.0.0.1:1")
    assert done.code == 0
    assert "does not answer" in done.json["registry"]["problem"]
    done = run("status", "-b", "127.0.0.1:1", "-r", "http://127.0.0.1:1")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("busway: no broker can be reached: cannot connect to 127.0.0.1:1")


def test_partitions_in_trouble() -> None:
    """Without a leader, or with fewer replicas in sync than there are."""
    partitions = (
        PartitionInfo(0, 1, 0, (1, 2), (1, 2)),
        PartitionInfo(1, 2, 0, (1, 2), (2,)),
        PartitionInfo(2, -1, 0, (1, 2), (1,)),
    )
    topic = TopicInfo("t", None, False, partitions)  # type: ignore[arg-type]
    assert [(row["partition"], row["state"], row["leader"]) for row in _troubled_rows([topic])] == [
        (1, "under-replicated", 2),
        (2, "offline", None),
    ]
    row = _topic_row(topic, {"t": 7})
    assert (row["replicas"], row["under_replicated"], row["offline"], row["end_offsets"]) == (2, 2, 1, 7)
    cluster = ClusterDescription("c", 2, {1: ("a", 1), 2: ("b", 2)})
    assert [
        (row["broker"], row["leads"], row["replicas"], row["controller"]) for row in _broker_rows(cluster, [topic])
    ] == [
        (1, 1, 3, False),
        (2, 1, 3, True),
    ]


def test_top_once(up: Up) -> None:
    """The rates of one interval, with the lag at its end; as text and as JSON."""
    up.run("topics", "create", "t1", "-p", "2")
    up.run("produce", "t1", "one", "-k", "k")
    up.run("consume", "t1", "--from-beginning", "-n", "1", "--group", "t1-readers")
    up.run("produce", "t1", "two", "-k", "k")
    facts = up.run("top", "--once", "-i", "0.1", "--json").json
    assert {"topic": "t1", "partitions": 2, "records_per_s": 0.0, "end_offsets": 2} in facts["topics"]
    group = {"group": "t1-readers", "state": "Empty", "topic": "t1", "records_per_s": 0.0, "lag": 1}
    assert group in facts["groups"]
    text = up.run("top", "--once", "-i", "0.1").out
    assert ["t1", "2", "0.0", "2"] in [line.split() for line in text.splitlines()]
    assert "__consumer_offsets" not in text
    assert "__consumer_offsets" in up.run("top", "--once", "-i", "0.1", "--internal").out
    assert up.run("top", "-i", "0").code == 2


def test_top_goes_on(up: Up) -> None:
    """A line for each interval, until it is stopped."""
    up.run("topics", "create", "t2")
    watching = start("top", "-i", "0.1", "--json", env=up.env)
    assert watching.stdout is not None
    assert watching.stdout.readline()
    up.run("produce", "t2", "one")
    while True:
        (rate,) = [row for row in json.loads(watching.stdout.readline())["topics"] if row["topic"] == "t2"]
        if rate["records_per_s"] > 0:
            break
    assert rate["end_offsets"] == 1
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=SECONDS)
    assert (watching.returncode, "Traceback" in err) == (130, False)
