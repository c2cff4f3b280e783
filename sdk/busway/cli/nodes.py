"""The nodes of `busway up --nodes N`: one process each.

Here: their settings, starting them, starting them again, ending them.
Not here: a node (`busway broker`), signals and children (`processes`).
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from busway.cli.output import CommandFailed
from busway.cli.processes import Child, Stopping, parent_pipe, shown, tell

NODES_MAX: Final = 7
"""Voters of one quorum; KRaft's advice is 3 or 5."""
AGAIN_S: Final = 5.0
"""Wait before a node that ended is started again: a failover becomes visible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFiles:
    """Where a node's settings and data are."""

    node_id: int
    properties: Path
    data: Path


def files_of(folder: Path, nodes: int) -> tuple[NodeFiles, ...]:
    return tuple(
        NodeFiles(node_id=number, properties=folder / f"node-{number}.properties", data=folder / f"node-{number}")
        for number in range(1, nodes + 1)
    )


def check_folder(folder: Path, nodes: int | None) -> None:
    """Refuse a folder that was started with another number of nodes: its records would seem lost.

    Args:
        nodes: None for a single broker.

    Raises:
        CommandFailed: it has data of another number of nodes.
    """
    there = sum((folder / f"node-{number}").is_dir() for number in range(1, NODES_MAX + 1))
    single = (folder / "broker").is_dir()
    other = "--data FOLDER takes another one"
    if nodes is None and there:
        raise CommandFailed(f"the folder {folder} has the data of {there} nodes; --nodes {there} starts them, {other}")
    if nodes is not None and single:
        raise CommandFailed(f"the folder {folder} has the data of a single broker; leave --nodes out, or {other}")
    if nodes is not None and there not in {0, nodes}:
        raise CommandFailed(
            f"the folder {folder} has the data of {there} nodes, not {nodes}; --nodes {there} starts them, {other}"
        )


def settings_of(
    nodes: tuple[NodeFiles, ...],
    *,
    host: str,
    ports: list[int],
    controller_ports: list[int],
    overrides: Mapping[str, str],
) -> dict[int, dict[str, str]]:
    """Return each node's settings: broker and controller, voter of one quorum."""
    voters = ",".join(f"{node.node_id}@127.0.0.1:{port}" for node, port in zip(nodes, controller_ports, strict=True))
    replicas, in_sync = str(min(3, len(nodes))), str(2 if len(nodes) > 2 else 1)
    return {
        node.node_id: {
            "process.roles": "broker,controller",
            "node.id": str(node.node_id),
            "log.dirs": str(node.data.absolute()),
            "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            # For development: no wait for further members when the first joins.
            "group.initial.rebalance.delay.ms": "0",
            **overrides,
        }
        for node, port, controller_port in zip(nodes, ports, controller_ports, strict=True)
    }


def prepare(bus: Any, nodes: tuple[NodeFiles, ...], settings: Mapping[int, Mapping[str, str]]) -> None:
    """Write the nodes' settings and format their directories for one cluster."""
    configs = {node.node_id: bus.BrokerConfig.from_properties(settings[node.node_id]) for node in nodes}
    formatted = [properties for config in configs.values() if (properties := bus.properties_of(config)) is not None]
    cluster_id = formatted[0].get("cluster.id", "") if formatted else bus.random_cluster_id()
    for node in nodes:
        text = "".join(f"{name}={value}\n" for name, value in settings[node.node_id].items())
        node.properties.write_text(f"# Written by busway up at each start.\n{text}", encoding="utf-8")
        bus.format_node(configs[node.node_id], cluster_id)


class Nodes:
    """The running processes.

    Attributes:
        bootstrap_servers: the nodes' addresses for clients, once all serve.
        stopping: set by a signal, or once no node can start.
    """

    def __init__(
        self, nodes: tuple[NodeFiles, ...], stopping: Stopping, pipe: int, log_level: str, log_format: str
    ) -> None:
        self._nodes, self.stopping, self._pipe = nodes, stopping, pipe
        self._logging = ["--log-level", log_level, "--log-format", log_format]
        self._in_text = log_format == "text"
        self._serving: dict[int, asyncio.Future[str]] = {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(serving.result() for serving in self._serving.values())

    async def run(self, node: NodeFiles) -> None:
        """Keep a node running until the end."""
        again = False
        while not self.stopping.asked.is_set():
            code = await self._once(node)
            if self.stopping.asked.is_set():
                return
            if not again and not self._serving[node.node_id].done():
                self._serving[node.node_id].set_exception(
                    CommandFailed(
                        f"node {node.node_id} cannot start, see above; busway broker -c {node.properties} starts it alone"
                    )
                )
                return
            again = True
            tell(f"node {node.node_id} {shown(code)}; the others go on, it starts again in {AGAIN_S:.0f} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.asked.wait(), AGAIN_S)

    async def _once(self, node: NodeFiles) -> int:
        child = await self.stopping.run(
            ["broker", "--config", str(node.properties), "--json", *self._logging],
            self._pipe,
            output=asyncio.subprocess.PIPE,
        )
        reading = asyncio.ensure_future(self._read(node, child))
        try:
            return await child.ended()
        finally:
            await reading

    async def _read(self, node: NodeFiles, child: Child) -> None:
        """Read the line that a node prints once it serves, and its log."""
        assert child.output is not None
        while line := await child.output.readline():
            serving = self._serving[node.node_id]
            with contextlib.suppress(ValueError, KeyError, TypeError):
                address = json.loads(line)["bootstrap_servers"]
                if not serving.done():
                    serving.set_result(address)
                else:
                    tell(f"node {node.node_id} serves again")
                continue
            sys.stderr.write((f"node {node.node_id}: " if self._in_text else "") + line.decode(errors="replace"))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start all nodes, wait until they serve; end them on leaving.

        Raises:
            CommandFailed: one cannot start.
        """
        loop = asyncio.get_running_loop()
        self._serving = {node.node_id: loop.create_future() for node in self._nodes}
        tasks = [asyncio.ensure_future(self.run(node)) for node in self._nodes]
        try:
            asked = asyncio.ensure_future(self.stopping.asked.wait())
            serving = asyncio.ensure_future(asyncio.wait(self._serving.values(), return_when=asyncio.FIRST_EXCEPTION))
            await asyncio.wait([asked, serving], return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            serving.cancel()
            for future in self._serving.values():
                if future.done():
                    future.result()
            yield
        finally:
            self.stopping.ask()
            for future in self._serving.values():
                if not future.done():
                    future.cancel()
                elif not future.cancelled():
                    future.exception()  # the first was raised
            await asyncio.wait(tasks)


@contextlib.asynccontextmanager
async def running(nodes: tuple[NodeFiles, ...], *, log_level: str, log_format: str) -> AsyncIterator[Nodes]:
    with Stopping() as stopping, parent_pipe() as pipe:
        started = Nodes(nodes, stopping, pipe, log_level, log_format)
        async with started.running():
            yield started
