"""The brokers of a simulation: one, or the nodes of a cluster.

Here: starting them, injecting their faults, healing.
Not here: drawing faults (`faults`), the service's instances (`run`).
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from busway.cluster.client import ClusterClient
from busway.errors import BuswayError
from busway.security.options import PLAINTEXT
from busway.testing.simulation.faults import Fault, Kind
from busway.testing.simulation.trace import Trace
from busway_protocol.messages.partitions import ElectLeadersRequest

if TYPE_CHECKING:
    from busway_bus.testing.world import SimNode, World

_ALONE: Final = "broker"
_OPERATOR: Final = "operator"
_ELECTION_S: Final = 10.0


class Brokers:
    """The brokers of a history.

    Args:
        count: 1, or the number of nodes that form a cluster.
    """

    def __init__(self, world: "World", trace: Trace, count: int) -> None:
        from busway_bus.testing.simulated_nodes import simulated_nodes

        self._world, self._trace = world, trace
        names = [_ALONE] if count == 1 else [f"{_ALONE}-{number}" for number in range(1, count + 1)]
        self._nodes: Sequence[SimNode] = [world.node(_ALONE)] if count == 1 else simulated_nodes(world, names)

    @property
    def names(self) -> Sequence[str]:
        """The hosts' names."""
        return [node.name for node in self._nodes]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self._nodes)

    async def start(self) -> None:
        """Start those that do not run."""
        from busway_bus.testing.simulated_nodes import start_nodes

        await start_nodes(self._nodes)

    async def heal(self) -> None:
        """Let every broker run; the network is healed already."""
        for node in self._nodes:
            node.thaw()
        while not all(node.running for node in self._nodes):
            await self.start()

    async def apply_fault(self, fault: Fault) -> None:
        """Inject a fault, and end it."""
        node = self._nodes[fault.node - 1]
        match fault.kind:
            case Kind.POWER_CUT_OF_ALL:
                await self._end_all(fault)
            case Kind.ELECT_LEADERS:
                self._trace.tell(_OPERATOR, "has preferred leaders elected")
                await self._world.process(_OPERATOR).run(self._elect_leaders)
            case _ if not node.running:
                return
            case Kind.SEPARATE_BROKER:
                self._tell(node, fault)
                await self._separate(node, fault.lasts_s)
            case Kind.FREEZE_BROKER:
                self._tell(node, fault)
                node.freeze()
                await asyncio.sleep(fault.lasts_s)
                node.thaw()
                self._trace.tell(node.name, "resumes")
            case _:
                await self._end(node, fault)

    def _tell(self, node: "SimNode", fault: Fault) -> None:
        self._trace.tell(node.name, f"{fault.kind.value.removeprefix('broker ')} for {fault.lasts_s:.1f} s")

    async def _end(self, node: "SimNode", fault: Fault) -> None:
        """End a broker and start it again."""
        from busway_bus.testing.world import Crashed

        self._tell(node, fault)
        match fault.kind:
            case Kind.POWER_CUT:
                node.power_cut()
            case Kind.RESTART_BROKER:
                with contextlib.suppress(Crashed):  # another fault ended it first
                    await node.stop()
            case _:
                node.crash()
        await asyncio.sleep(fault.lasts_s)
        if not node.running:  # after another fault it may
            with contextlib.suppress(Crashed):
                await node.start()
                self._trace.tell(node.name, "is back")

    async def _end_all(self, fault: Fault) -> None:
        self._trace.tell("world", f"{fault.kind.value} for {fault.lasts_s:.1f} s")
        for node in self._nodes:
            node.power_cut()
        await asyncio.sleep(fault.lasts_s)
        await self.start()
        self._trace.tell("world", "brokers are back")

    async def _separate(self, node: "SimNode", lasts_s: float) -> None:
        """Cut a broker from the others; clients reach all."""
        network = self._world.network
        pairs = [
            pair
            for other in self._nodes
            if other is not node
            for pair in ((node.name, other.name), (other.name, node.name))
        ]
        for pair in pairs:
            network.silence(*pair)
        await asyncio.sleep(lasts_s)
        for pair in pairs:
            network.heal(*pair)
        self._trace.tell(node.name, "reaches the others again")

    async def _elect_leaders(self) -> None:
        client = ClusterClient(
            self.bootstrap_servers, client_id=_OPERATOR, request_timeout_s=_ELECTION_S, security=PLAINTEXT
        )
        with contextlib.suppress(BuswayError, TimeoutError):  # no broker is there
            async with asyncio.timeout(_ELECTION_S):
                await client.start()
                try:
                    await client.ask_controller(ElectLeadersRequest(election_type=0, topic_partitions=None))
                finally:
                    await client.close()
