"""`busway up --nodes 3`: a cluster of processes that survives the loss of one, and what its folder refuses."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.integration.cli.conftest import SECONDS, Up, run

pytestmark = pytest.mark.slow


def process_of(properties: Path) -> int | None:
    """Return the process that runs a node."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,args="], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        pid, _, words = line.strip().partition(" ")
        if str(properties) in words:
            return int(pid)
    return None


def states(up: Up) -> dict[int, str]:
    return {row["node"]: row["state"] for row in up.run("cluster", "status", "--json").json}


@pytest.mark.hostile
def test_a_node_is_killed_and_comes_back(tmp_path: Path) -> None:
    """Nothing acknowledged is lost, writing goes on, the node is started again; the next start has it all."""
    data = tmp_path / "data"
    up = Up(data, "--nodes", "3")
    try:
        assert up.bootstrap.count(",") == 2
        assert up.run("topics", "create", "rides", "-p", "3").out == "created rides with 3 partitions\n"
        assert states(up) == {1: "active", 2: "active", 3: "active"}
        first = [f"before {number}" for number in range(30)]
        assert up.run("produce", "rides", stdin="\n".join(first) + "\n").code == 0
        killed = process_of(data / "node-2.properties")
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        second = [f"after {number}" for number in range(30)]
        assert up.run("produce", "rides", stdin="\n".join(second) + "\n").code == 0
        read = up.run("consume", "rides", "--from-beginning", "-n", "60").out.splitlines()
        assert sorted(read) == sorted(first + second)
        deadline_s = time.monotonic() + SECONDS
        while states(up).get(2) != "active":
            assert time.monotonic() < deadline_s, "node 2 did not come back"
        assert process_of(data / "node-2.properties") not in {None, killed}
    finally:
        assert up.stop() == 0
    alone = run("up", "--data", str(data), "--port", "0", "--registry-port", "0")
    assert "has the data of 3 nodes; --nodes 3 starts them" in alone.err
    up = Up(data, "--nodes", "3")
    try:
        read = up.run("consume", "rides", "--from-beginning", "-n", "60").out.splitlines()
        assert sorted(read) == sorted(first + second)
    finally:
        assert up.stop(signal.SIGTERM) == 0


def test_a_folder_has_one_number_of_nodes(tmp_path: Path) -> None:
    """Records of another number would seem lost."""
    (tmp_path / "single" / "broker").mkdir(parents=True)
    done = run("up", "--data", str(tmp_path / "single"), "--nodes", "3", "--port", "0", "--registry-port", "0")
    assert "has the data of a single broker; leave --nodes out" in done.err
    for node in (1, 2, 3):
        (tmp_path / "three" / f"node-{node}").mkdir(parents=True)
    done = run("up", "--data", str(tmp_path / "three"), "--nodes", "5", "--port", "0", "--registry-port", "0")
    assert "has the data of 3 nodes, not 5" in done.err
    assert run("up", "--nodes", "8").err == "busway: --nodes 8: give a number from 1 to 7\n"
    assert "--metrics is one address" in run("up", "--nodes", "3", "--metrics", "127.0.0.1:9000").err
