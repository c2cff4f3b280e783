"""The faults of a run on a simulated cluster.

Here: each kind, and putting everything right at the end.
Not here: which faults a run has (`plan`).
"""

import asyncio
import errno
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from busway_bus.testing.world import Crashed, SimNode
from tests.simulation.faults import content_of, paths_of, protected, put
from tests.simulation.plan import Fault
from tests.simulation.three_nodes.nodes import COPY, TOPIC, Cluster, serves

STOP_S = 5.0
"""Virtual time after which an orderly stop is a kill, as with service managers."""


class ClusterFaults:
    """The faults of one run.

    Args:
        kill_client: kills a client and starts it again.

    Attributes:
        made: number of faults by kind that hit something.
    """

    def __init__(self, cluster: Cluster, kill_client: Callable[[str], None]) -> None:
        self._kill_client = kill_client
        self._chance = cluster.world.chance("damage")
        self._damaged: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        """Contents of a file before and after, by node and path."""
        self._cluster, self._world, self._network = cluster, cluster.world, cluster.world.network
        self.made: Counter[str] = Counter()
        self._silent: Counter[tuple[str, str]] = Counter()

    async def run(self) -> None:
        """Make all faults of the plan, each at its moment; return when the last is over."""
        began, under_way = self._world.now, []
        for fault in self._cluster.plan.faults:
            await self._world.sleep(max(0.0, began + fault.at_ms / 1000 - self._world.now))
            self._world.trace.add(self._world.now, "world", str(fault))
            under_way.append(asyncio.create_task(self._make(fault)))
        await self._world.sleep(max(0.0, began + self._cluster.plan.span_ms / 1000 - self._world.now))
        if under_way:
            await asyncio.wait(under_way)
        for task in under_way:
            task.result()

    async def _make(self, fault: Fault) -> None:
        kinds: Mapping[str, Callable[[Fault], Awaitable[bool]]] = {
            "crash": self._crash,
            "power cut": self._crash,
            "all dark": self._all_dark,
            "stop": self._stop,
            "freeze": self._freeze,
            "cut": self._cut,
            "partition": self._partition,
            "one way": self._one_way,
            "ring": self._ring,
            "half open": self._half_open,
            "slow link": self._slow_link,
            "slow disk": self._slow_disk,
            "full disk": self._full_disk,
            "failing sync": self._failing_sync,
            "damage": self._damage,
            "wipe": self._wipe,
            "kill client": self._kill,
            "clock jump": self._jump,
        }
        if await kinds[fault.kind](fault):
            self.made[fault.kind] += 1

    def _node(self, fault: Fault) -> SimNode:
        return self._cluster.by_name[fault.target]

    async def heal(self) -> None:
        """End all faults."""
        self._network.heal()
        self._network.slow.clear()
        self._cluster.down_until.clear()
        for node in self._cluster.nodes:
            node.disk.steps_left = None  # a crash that waits for a step on the disk
            node.disk.faults.capacity, node.disk.faults.syncs = None, 0.0
            node.host.slowness, node.host.wall_offset_ms = 1.0, 0
        self._repair()

    # Nodes

    async def _crash(self, fault: Fault) -> bool:
        node = self._node(fault)
        if not node.running:
            return False
        self._cluster.take_down(node, fault.for_ms)
        end = node.power_cut if fault.kind == "power cut" else node.crash
        end(at_step=fault.amount or None)
        return True

    async def _all_dark(self, fault: Fault) -> bool:
        for node in self._cluster.nodes:
            self._cluster.take_down(node, fault.for_ms)
            node.power_cut()
        return True

    async def _stop(self, fault: Fault) -> bool:
        node = self._node(fault)
        if not serves(node):
            return False
        self._cluster.take_down(node, fault.for_ms)
        stopping = asyncio.ensure_future(node.stop())
        await asyncio.wait([stopping], timeout=STOP_S)
        if not stopping.done():
            node.crash()
            await asyncio.wait([stopping])
        if (problem := stopping.exception()) is not None and not isinstance(problem, Crashed):
            raise problem
        return True

    async def _freeze(self, fault: Fault) -> bool:
        process = self._node(fault).process
        if process is None or not process.alive:
            return False
        process.freeze()
        await self._world.sleep(fault.for_ms / 1000)
        process.thaw()
        return True

    # The network

    async def _silence(self, pairs: list[tuple[str, str]], fault: Fault) -> bool:
        """Hold packets for a while; of overlapping silences the last to end counts."""
        for pair in pairs:
            self._silent[pair] += 1
            self._network.silence(*pair)
        await self._world.sleep(fault.for_ms / 1000)
        for pair in pairs:
            self._silent[pair] -= 1
            if not self._silent[pair]:
                self._network.heal(*pair)
        return True

    def _names(self) -> list[str]:
        return [node.name for node in self._cluster.nodes]

    async def _partition(self, fault: Fault) -> bool:
        """Separate a node from all others; clients reach it."""
        others = [name for name in self._names() if name != fault.target]
        return await self._silence(
            [pair for name in others for pair in ((fault.target, name), (name, fault.target))], fault
        )

    async def _one_way(self, fault: Fault) -> bool:
        sender, receiver = fault.target.split(">")
        return await self._silence([(sender, receiver)], fault)

    async def _ring(self, fault: Fault) -> bool:
        """Let each node send to the next one only."""
        names = self._names()
        following = {name: names[(number + 1) % len(names)] for number, name in enumerate(names)}
        pairs = [(name, peer) for name in names for peer in names if peer not in {name, following[name]}]
        return await self._silence(pairs, fault)

    async def _half_open(self, fault: Fault) -> bool:
        """Reset one end of the connections between two nodes; the other end learns of it later."""
        near, far = fault.target.split(">")
        ends = [*self._network.between(near, far)]
        silence = asyncio.ensure_future(self._silence([(near, far), (far, near)], fault))
        await self._world.sleep(0)
        for end in ends:
            end.drop(ConnectionResetError(errno.ECONNRESET, "one end was reset"))
        await silence
        return bool(ends)

    async def _cut(self, fault: Fault) -> bool:
        return bool(self._network.cut(fault.target))

    async def _slow_link(self, fault: Fault) -> bool:
        sender, receiver = fault.target.split(">")
        self._network.slow[sender, receiver] = fault.amount / 1000
        await self._world.sleep(fault.for_ms / 1000)
        self._network.slow.pop((sender, receiver), None)
        return True

    # The machine

    async def _slow_disk(self, fault: Fault) -> bool:
        host = self._node(fault).host
        host.slowness = float(fault.amount)
        await self._world.sleep(fault.for_ms / 1000)
        host.slowness = 1.0
        return True

    async def _full_disk(self, fault: Fault) -> bool:
        disk = self._node(fault).disk
        disk.faults.capacity = disk.used() + fault.amount
        await self._world.sleep(fault.for_ms / 1000)
        disk.faults.capacity = None
        return True

    async def _failing_sync(self, fault: Fault) -> bool:
        """Fail so many of a hundred syncs."""
        disk = self._node(fault).disk
        disk.faults.syncs = fault.amount / 100
        await self._world.sleep(fault.for_ms / 1000)
        disk.faults.syncs = 0.0
        return True

    async def _damage(self, fault: Fault) -> bool:
        """Flip a bit of a log while its node is down."""
        node = self._node(fault)
        if not node.running:
            return False
        node.crash()
        self._cluster.take_down(node, fault.for_ms)
        paths = [
            path
            for path in paths_of(node.disk)
            if (node.name, path) not in self._damaged
            and path.rpartition("-")[0] in {TOPIC, COPY}
            and path.endswith(".log")
            and content_of(node.disk, path)
        ]
        if not paths:
            return False
        path = self._chance.choice(paths)
        whole = content_of(node.disk, path) or b""
        at = protected(whole, self._chance.randrange(len(whole)))
        damaged = whole[:at] + bytes([whole[at] ^ 1 << self._chance.randrange(8)]) + whole[at + 1 :]
        put(node.disk, path, damaged)
        self._damaged[node.name, path] = (whole, damaged)
        self._cluster.damaged.add(node.name)
        self._world.trace.add(self._world.now, node.name, f"byte {at} of {path} is damaged")
        return True

    def _repair(self) -> None:
        """Flip back the bits that no start has noticed: as in Kafka, a start trusts closed segments that were flushed.

        A replica whose damage was noticed is fetched again.
        """
        for (name, path), (whole, damaged) in self._damaged.items():
            node = self._cluster.by_name[name]
            content = content_of(node.disk, path)
            if content is not None and content[: len(damaged)] == damaged:
                node.crash()
                put(node.disk, path, whole + content[len(damaged) :])
        self._damaged.clear()
        self._cluster.damaged.clear()

    async def _wipe(self, fault: Fault) -> bool:
        """Replace a broker by an empty machine with its name."""
        node = self._node(fault)
        node.power_cut()
        self._cluster.take_down(node, fault.for_ms)
        self._cluster.replace_disk(node)
        return True

    async def _kill(self, fault: Fault) -> bool:
        self._kill_client(fault.target)
        return True

    async def _jump(self, fault: Fault) -> bool:
        self._node(fault).host.wall_offset_ms += fault.amount
        return True
