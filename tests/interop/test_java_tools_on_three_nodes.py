"""Apache Kafka's tools on three nodes: who leads, who is in sync or eligible, and where replicas are."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from busway_bus.testing.local_nodes import LocalNodes
from tests.interop.test_java_tools import TOOLS
from tests.support.apache_kafka import java
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.java]


async def tool(nodes: LocalNodes, name: str, *arguments: str) -> str:
    """Run one of the tools; its standard output."""
    return await asyncio.to_thread(java, TOOLS[name], "--bootstrap-server", nodes.bootstrap_servers, *arguments)


async def rows(nodes: LocalNodes) -> list[tuple[str, ...]]:
    """Leader, replicas, ISR and ELR of each partition of t, as kafka-topics prints them."""
    output = await tool(nodes, "kafka-topics", "--describe", "--topic", "t")
    return re.findall(r"Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S+)\s+Elr: (\S*)\s", output)


def in_sync(nodes: LocalNodes, count: int) -> bool:
    """Whether each partition of t has so many replicas in sync, as every node knows."""
    images = [node.services.image.topics.get("t") for node in nodes.nodes.values()]
    return all(
        topic is not None and all(len(partition.isr) == count for partition in topic.partitions) for topic in images
    )


async def test_elections_and_moves_by_kafkas_tools(tmp_path: Path) -> None:
    """A node that is shut down is eligible, as two must be in sync; then it leads again, and a partition moves."""
    async with LocalNodes() as nodes:
        await tool(nodes, "kafka-topics", "--create", "--topic", "t", "--replica-assignment", "1:2,2:3")
        await until(lambda: in_sync(nodes, 2))
        await nodes.shut_down(2)
        await until(lambda: in_sync(nodes, 1))
        assert await rows(nodes) == [("1", "1,2", "1", "2"), ("3", "2,3", "3", "2")]
        await nodes.restart(2)
        await until(lambda: in_sync(nodes, 2))
        election = await tool(nodes, "kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
        assert "Successfully completed leader election (PREFERRED) for partitions t-1" in election
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3, 1]}]}))
        moving = ("--reassignment-json-file", str(plan))
        assert "Successfully started" in await tool(nodes, "kafka-reassign-partitions", *moving, "--execute")
        await until(lambda: all(image_of(nodes, node_id) == (3, 1) for node_id in nodes.nodes))
        verified = await tool(nodes, "kafka-reassign-partitions", *moving, "--verify")
        assert "Reassignment of partition t-0 is completed." in verified
        assert [(row[0], row[1], row[3]) for row in await rows(nodes)] == [("1", "3,1", ""), ("2", "2,3", "")]


def image_of(nodes: LocalNodes, node_id: int) -> tuple[int, ...]:
    """The replicas of t-0."""
    partition = nodes.nodes[node_id].services.image.partition("t", 0)
    assert partition is not None
    return () if partition.adding or partition.removing else partition.replicas
