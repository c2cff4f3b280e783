"""`busway cluster`: what it formats, refuses and prints."""

from pathlib import Path

import pytest
from tests.integration.cli.conftest import Up, run

pytestmark = pytest.mark.slow
CLUSTER = "yl0NOCuGQruVR5ZTZwPwsg"


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Write the settings of node 1."""
    path = tmp_path / "server.properties"
    path.write_text(f"node.id=1\nlog.dirs={tmp_path / 'data'}\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    return str(path)


def test_a_directory_is_formatted_once(config: str, tmp_path: Path) -> None:
    """It has Kafka's four properties; a second time is refused, unless that is accepted."""
    assert "is not formatted; busway cluster format does that" in run("cluster", "info", "-c", config).err
    done = run("cluster", "format", "-c", config, "-t", CLUSTER)
    assert done.out == f"{tmp_path / 'data'} formatted for node 1 of the cluster {CLUSTER}\n"
    lines = (tmp_path / "data" / "meta.properties").read_text().splitlines()
    assert lines[:3] == ["version=1", f"cluster.id={CLUSTER}", "node.id=1"]
    assert lines[3].startswith("directory.id=")
    again = run("cluster", "format", "-c", config, "-t", CLUSTER)
    assert (again.code, "--ignore-formatted accepts that" in again.err) == (1, True)
    accepted = run("cluster", "format", "-c", config, "-t", CLUSTER, "-g", "--json").json
    assert (accepted["node_id"], accepted["formatted"]) == (1, False)
    shown = {row["property"]: row["value"] for row in run("cluster", "info", "-c", config, "--json").json}
    assert (shown["cluster.id"], shown["node.id"]) == (CLUSTER, "1")
    assert (tmp_path / "data" / "meta.properties").read_text().splitlines() == lines


def test_a_directory_of_another_cluster_or_node_stays(config: str, tmp_path: Path) -> None:
    """Its identity is never replaced."""
    assert run("cluster", "format", "-c", config, "-t", CLUSTER).code == 0
    before = (tmp_path / "data" / "meta.properties").read_bytes()
    other = run("cluster", "random-uuid").out.strip()
    assert (
        f"belongs to the cluster {CLUSTER}, not to {other}"
        in run("cluster", "format", "-c", config, "-t", other, "-g").err
    )
    moved = run("cluster", "format", "-c", config, "-t", CLUSTER, "-g", "-o", "node.id=2")
    assert "belongs to node 1, this is node 2" in moved.err
    assert (tmp_path / "data" / "meta.properties").read_bytes() == before


def test_a_directory_with_logs_is_not_formatted(config: str, tmp_path: Path) -> None:
    """Without its `meta.properties` it may be any cluster's."""
    (tmp_path / "data" / "rides-0").mkdir(parents=True)
    (tmp_path / "data" / "rides-0" / "partition.metadata").write_text("version: 0\n")
    done = run("cluster", "format", "-c", config, "-t", CLUSTER)
    assert "meta.properties is missing from the data directory, but rides-0 holds data" in done.err
    assert done.code == 1


def test_bad_input(config: str, tmp_path: Path) -> None:
    """One line names the input and the remedy."""
    assert run("cluster", "format", "-c", config, "-t", "shop").err == (
        "busway: shop is no cluster id; busway cluster random-uuid prints a new one\n"
    )
    missing = str(tmp_path / "none.properties")
    assert run("cluster", "info", "-c", missing).err == f"busway: {missing}: No such file or directory\n"


def test_status_of_a_single_node(up: Up) -> None:
    """It is broker and leader of the quorum."""
    rows = up.run("cluster", "status", "--json").json
    assert [(row["roles"], row["state"], row["lag"]) for row in rows] == [(["broker", "leader"], "active", 0)]
    assert up.run("cluster", "status").out.startswith("node\troles\taddress\tstate\t")
