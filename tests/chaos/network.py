"""A network of the run alone: a namespace for each node, and a router between them.

Here: addresses, cuts in one direction, slow and lossy links, their counters.
Not here: which cut comes when (`faults`).

The process of the run, with all clients, is in the router's namespace. A packet that is cut is routed to a device that
drops and counts it, so the sender gets no error. Links are slow, or lossy, with tc's token bucket: many kernels lack netem.
"""

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Final

from tests.support.programs import spawn_async
from tests.support.waiting import until

_CUT_TABLE: Final = "100"
_SINK: Final = "sink"
SLOW: Final = ("rate", "1mbit", "burst", "3000", "limit", "60000")
"""Queues up to 0.5 s of bytes."""
LOSSY: Final = ("rate", "3mbit", "burst", "3000", "limit", "4500")
"""A queue of three packets: TCP loses some of each larger batch."""


def _run(*command: str, lines: Iterable[str] = ()) -> str:
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout


class Network:
    """The run's network, for the time of its context.

    Attributes:
        dropped: packets that cuts and full queues dropped so far, counted when links are whole again.
    """

    def __init__(self, node_ids: Collection[int]) -> None:
        self._node_ids = tuple(node_ids)
        self._holders: dict[int, asyncio.subprocess.Process] = {}
        self.dropped = 0

    def address_of(self, node_id: int) -> str:
        return f"10.77.{node_id}.2"

    def inside(self, node_id: int) -> Sequence[str]:
        """Return the words before a command that runs in a node's namespace."""
        return "nsenter", f"--net=/proc/{self._holders[node_id].pid}/ns/net", "--"

    async def open(self) -> None:
        """Make the namespaces and links.

        The namespace of this process is not the machine's: `python -m tests.chaos` changed it.
        """
        _run("ip", "-batch", "-", lines=["link set lo up", f"link add {_SINK} type ifb", f"link set {_SINK} up"])
        _run("ip", "route", "add", "default", "dev", _SINK, "table", _CUT_TABLE)
        _run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        for node_id in self._node_ids:
            holder = await spawn_async("unshare", "--net", "sleep", "infinity")
            self._holders[node_id] = holder
            await until(lambda pid=holder.pid: _namespace(pid) != _namespace("self"))  # type: ignore[misc]
            router = f"10.77.{node_id}.1"
            lines = [
                f"link add n{node_id} type veth peer name eth0 netns {holder.pid}",
                f"addr add {router}/24 dev n{node_id}",
                f"link set n{node_id} up",
            ]
            _run("ip", "-batch", "-", lines=lines)
            lines = [
                "link set lo up",
                f"addr add {self.address_of(node_id)}/24 dev eth0",
                "link set eth0 up",
                f"route add default via {router}",
            ]
            _run(*self.inside(node_id), "ip", "-batch", "-", lines=lines)

    @contextlib.asynccontextmanager
    async def cut(self, pairs: Iterable[tuple[int, int]]) -> AsyncIterator[None]:
        """Drop each packet from the first node of a pair to the second."""
        rules = [
            f"from {self.address_of(sender)} to {self.address_of(receiver)} lookup {_CUT_TABLE}"
            for sender, receiver in pairs
        ]
        before = self._sunk()
        _run("ip", "-batch", "-", lines=[f"rule add {rule}" for rule in rules])
        try:
            yield
        finally:
            _run("ip", "-batch", "-", lines=[f"rule del {rule}" for rule in rules])
            self.dropped += self._sunk() - before

    def _sunk(self) -> int:
        (link,) = json.loads(_run("ip", "-json", "-s", "link", "show", _SINK))
        return sum(link["stats64"][way]["dropped"] for way in ("rx", "tx"))

    @contextlib.asynccontextmanager
    async def unplugged(self, node_id: int) -> AsyncIterator[None]:
        """Take a node's cable out: no client reaches it either."""
        _run("ip", "link", "set", f"n{node_id}", "down")
        try:
            yield
        finally:
            _run("ip", "link", "set", f"n{node_id}", "up")

    @contextlib.asynccontextmanager
    async def congested(self, node_id: int, bucket: Sequence[str]) -> AsyncIterator[None]:
        """Limit a node's link in both directions to `SLOW` or `LOSSY`."""
        ends = ((), f"n{node_id}"), (self.inside(node_id), "eth0")
        for prefix, device in ends:
            _run(*prefix, "tc", "qdisc", "add", "dev", device, "root", "tbf", *bucket)
        try:
            yield
        finally:
            for prefix, device in ends:
                shown = json.loads(_run(*prefix, "tc", "-json", "-s", "qdisc", "show", "dev", device))
                self.dropped += sum(discipline["drops"] for discipline in shown)
                _run(*prefix, "tc", "qdisc", "del", "dev", device, "root")


def _namespace(process: int | str) -> str:
    return os.readlink(f"/proc/{process}/ns/net")
