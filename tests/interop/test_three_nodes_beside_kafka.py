"""What Java's tools print of three nodes and carry out on them, beside three nodes of Apache Kafka 4.3.1."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.interop.client_report import ClientReport
from tests.interop.java_tools import ToolsJvm
from tests.support.apache_kafka_nodes import ApacheKafkaNodes
from tests.support.busway_nodes import BuswayNodes
from tests.support.waiting import until

pytestmark = [pytest.mark.foreign, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(400)]
TO_BROKERS = """
topics --create --topic t --replica-assignment 1:2:3,2:3:1,3:1:2
topics --create --topic t --replica-assignment 1:2:3
topics --create --topic u --partitions 2 --replication-factor 4
topics --create --topic u --replica-assignment 1:2:7
topics --create --topic u --replica-assignment 1:1:2
topics --create --topic u --replica-assignment 3:1 --config min.insync.replicas=1 --config cleanup.policy=compact
topics --describe
topics --describe --under-replicated-partitions
topics --describe --at-min-isr-partitions
topics --alter --topic u --partitions 3 --replica-assignment 3:1,1:2,2:3
topics --alter --topic u --partitions 2
topics --describe --topic u
configs --alter --entity-type brokers --entity-default --add-config log.retention.ms=777777
configs --alter --entity-type brokers --entity-name 2 --add-config log.cleaner.threads=2
configs --alter --entity-type brokers --entity-name 9 --add-config log.cleaner.threads=2
configs --describe --entity-type brokers
configs --describe --entity-type brokers --entity-name 2
configs --describe --entity-type brokers --entity-name 3
configs --alter --entity-type topics --entity-name t --add-config retention.ms=1000
configs --describe --entity-type topics --entity-name t
quorum describe --status
quorum describe --replication
cluster cluster-id
cluster list-endpoints
cluster list-endpoints --include-fenced-brokers
cluster unregister --id 9
leader-election --election-type preferred --all-topic-partitions
leader-election --election-type preferred --topic t --partition 0
leader-election --election-type unclean --topic t --partition 0
reassign --list
""".strip().splitlines()
TO_CONTROLLERS = """
quorum describe --status
quorum describe --replication
cluster cluster-id
cluster list-endpoints
configs --describe --entity-type brokers
configs --alter --entity-type brokers --entity-name 3 --add-config log.cleaner.threads=2
configs --alter --entity-type topics --entity-name t --add-config retention.ms=2000
leader-election --election-type preferred --topic t --partition 1
reassign --list
features upgrade --feature transaction.version=1 --dry-run
""".strip().splitlines()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One of both: its addresses, and how a node is stopped in order and started again."""

    brokers: str
    controllers: str
    stop: Callable[[int], Coroutine[Any, Any, None]]
    start: Callable[[int], Coroutine[Any, Any, None]]


@pytest.fixture
async def both() -> AsyncIterator[tuple[Cluster, Cluster]]:
    """Three nodes of each."""
    properties = {"auto.leader.rebalance.enable": "false"}
    kafka, ours = ApacheKafkaNodes(properties=properties), BuswayNodes(properties)
    await asyncio.to_thread(kafka.__enter__)
    try:
        await asyncio.to_thread(ours.start)
        yield (
            _cluster(ours, lambda node_id: ours.nodes[node_id].shut_down(), lambda _: ours.start()),
            _cluster(
                kafka, lambda node_id: kafka.nodes[node_id].shut_down(), lambda node_id: kafka.nodes[node_id].start()
            ),
        )
    finally:
        await asyncio.to_thread(kafka.__exit__, None, None, None)
        await asyncio.to_thread(ours.stop)


def _cluster(
    nodes: ApacheKafkaNodes | BuswayNodes, stop: Callable[[int], None], start: Callable[[int], None]
) -> Cluster:
    return Cluster(
        brokers=nodes.bootstrap_servers,
        controllers=nodes.bootstrap_controllers,
        stop=lambda node_id: asyncio.to_thread(stop, node_id),
        start=lambda node_id: asyncio.to_thread(start, node_id),
    )


def shown(cluster: Cluster, printed: str) -> list[str]:
    """What was printed, with a word in the place of each id, address, time, offset, and of the leader of the quorum."""
    for kind, addresses in (("BROKER", cluster.brokers), ("CONTROLLER", cluster.controllers)):
        printed = printed.replace(addresses, f"{kind}S")
        for number, address in enumerate(addresses.split(","), 1):
            host, port = address.split(":")
            printed = re.sub(rf"{re.escape(host)}(:|\s+){port}\b", f"{kind}-{number}", printed)
    for pattern, word in (
        (r"(Cluster ID: |ClusterId:\s+|TopicId: )\S{22}", r"\1ID"),
        (r"\b1\d{12}\b", "TIME"),
        (r'"/[^"]*/(?:node-\d|data)"', "DIRECTORY"),
        (r"((?:LeaderId|LeaderEpoch|HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs):\s+)\d+", r"\1N"),
        (r"^\d(\s+\S{22}\s+)\d+\s+\d+ ", r"NODE\1N "),
    ):
        printed = re.sub(pattern, word, printed, flags=re.MULTILINE)
    for begin, gap in (("Isr: ", ","), ("for partitions ", ", ")):  # in no order of their own
        printed = re.sub(
            rf"({begin})([^\s,]+(?:{gap}[^\s,]+)*)",
            lambda seen, gap=gap: seen[1] + gap.join(sorted(seen[2].split(gap))),
            printed,
        )
    lines = [re.sub(r"\s+", " ", line).strip() for line in printed.splitlines()]
    return sorted(line for line in lines if line and line != "null")


async def ask(jvm: ToolsJvm, cluster: Cluster, line: str, *, controllers: bool = False) -> tuple[int, list[str]]:
    """Run a tool on a cluster."""
    tool, *arguments = line.split()
    at = 1 if tool in {"cluster", "quorum"} else 0
    where = ("--bootstrap-controller", cluster.controllers) if controllers else ("--bootstrap-server", cluster.brokers)
    command = (*arguments[:at], *where, *arguments[at:]) if tool == "cluster" else (*where, *arguments)
    code, printed = await asyncio.to_thread(jvm.run, tool, *command)
    return code, shown(cluster, printed)


async def test_what_the_tools_print_and_do(
    both: tuple[Cluster, Cluster], tmp_path: Path, client_report: ClientReport
) -> None:
    """The same on both: line by line, while a node is away, and when replicas move."""
    with ToolsJvm() as jvm:
        for number in (1, 2, 3):
            await settled(jvm, both, "cluster list-endpoints", f"{number} BROKER-{number}")
        await compare(jvm, both, *TO_BROKERS)
        await compare(jvm, both, *TO_CONTROLLERS, controllers=True)
        await a_node_is_away(jvm, both)
        await replicas_move(jvm, both, tmp_path)
    for tool in ("topics", "configs", "metadata-quorum", "cluster", "leader-election", "reassign-partitions"):
        client_report.note_tool(f"kafka-{tool}", "prints of three nodes what it prints of three of Apache Kafka")


async def compare(jvm: ToolsJvm, both: tuple[Cluster, Cluster], *lines: str, controllers: bool = False) -> None:
    """Run each line on both; what differs is in the failure."""
    differences = []
    for line in lines:
        here, there = [await ask(jvm, cluster, line, controllers=controllers) for cluster in both]
        if here != there:
            differences.append(f"{line}\n  {here}\n  Kafka: {there}")
    assert not differences, "\n".join(differences)


async def settled(jvm: ToolsJvm, both: tuple[Cluster, Cluster], line: str, wanted: str) -> None:
    """Wait until a tool prints these words of each cluster, or nothing for no words; then all lines are the same."""
    printed: Mapping[int, tuple[int, list[str]]] = {}

    async def is_shown() -> bool:
        nonlocal printed
        printed = {number: await ask(jvm, cluster, line) for number, cluster in enumerate(both)}
        return all(wanted in " ".join(lines) if wanted else not lines for _, lines in printed.values())

    try:
        await until(is_shown, seconds=60, pause_s=0.5)
    except TimeoutError:
        raise AssertionError(f"{line} does not show {wanted!r} of both: {printed}") from None
    assert printed[0] == printed[1], line


async def a_node_is_away(jvm: ToolsJvm, both: tuple[Cluster, Cluster]) -> None:
    """Leaders move, replicas leave the ISR and are eligible where too few are in sync; back, the node leads by an election."""
    await asyncio.gather(*(cluster.stop(2) for cluster in both))
    await settled(jvm, both, "topics --describe --topic u", "Partition: 1 Leader: 1 Replicas: 1,2 Isr: 1 Elr:")
    await settled(jvm, both, "topics --describe --topic t", "Partition: 2 Leader: 3 Replicas: 3,1,2 Isr: 1,3 Elr:")
    await settled(jvm, both, "cluster list-endpoints --include-fenced-brokers", " fenced")
    await compare(
        jvm,
        both,
        "topics --describe --under-replicated-partitions",
        "topics --describe --under-min-isr-partitions",
        "topics --describe --unavailable-partitions",
        "leader-election --election-type preferred --topic t --partition 1",
        "configs --describe --entity-type brokers",
        "cluster unregister --id 2",
        "cluster list-endpoints --include-fenced-brokers",
    )
    await asyncio.gather(*(cluster.start(2) for cluster in both))
    await settled(jvm, both, "topics --describe --under-replicated-partitions", "")
    await settled(jvm, both, "cluster list-endpoints", "2 BROKER-2")
    await compare(jvm, both, "leader-election --election-type preferred --all-topic-partitions")


async def replicas_move(jvm: ToolsJvm, both: tuple[Cluster, Cluster], tmp_path: Path) -> None:
    """A plan is carried out, verified and gone; one with an unknown broker is refused."""
    for name, replicas in (("plan", [2, 3]), ("wrong", [2, 8])):
        partitions = [{"topic": "u", "partition": 0, "replicas": replicas}]
        (tmp_path / name).write_text(json.dumps({"version": 1, "partitions": partitions}))
    for name in ("wrong", "plan"):
        await compare(jvm, both, f"reassign --reassignment-json-file {tmp_path}/{name} --execute")
    await settled(jvm, both, f"reassign --reassignment-json-file {tmp_path}/plan --verify", "is completed")
    await settled(jvm, both, "topics --describe --topic u", "Partition: 0 Leader: 3 Replicas: 2,3")
