"""What goes wrong, and what an operator does about it.

Here: each kind of fault on a running world, keeping the node running, and putting everything right at the end.
Not here: which faults there are in a run (`plan`).
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from busway_bus.testing.sim_disk import Content
from busway_bus.testing.sim_files import SimFiles
from busway_bus.testing.world import Crashed
from busway_protocol.records.batch import HEADER_BYTES
from tests.simulation.history import Commit, Committed, Operation, Partition, Poll, Send
from tests.simulation.plan import Fault
from tests.simulation.share_history import ShareRequest
from tests.simulation.transaction_history import CommittedPoll, GroupOffset, Transaction

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

_LOOK_S: Final = 0.2
_SLOWEST: Final = 1_500.0
"""Times that work in threads may take longer than usual: about three seconds for a sync."""
_BEFORE_LENGTH: Final = 8
_BASE_OFFSET: Final = range(8)
_LEADER_EPOCH: Final = range(12, 16)
_CRC: Final = 17
"""Where it is in a batch."""
_AGAIN_S: Final = 1.0
"""An operator starts a node again so long after it has exited."""


class Faults:
    """The faults of one run."""

    def __init__(self, scenario: "Scenario") -> None:
        self._scenario = scenario
        self._plan = scenario.plan
        self._node = scenario.node
        self._world = scenario.world
        self._began = 0.0
        self._down_until = 0.0
        self._calm = False
        self._stopping = False
        self._slow_by: Counter[int] = Counter()
        self._refused: Exception | None = None
        self._damaged: dict[str, tuple[bytes, bytes]] = {}
        """Files by path: how they were before, and damaged."""
        self._chance = random.Random(f"faults/{scenario.plan.seed}")

    def apply_delays(self) -> None:
        """What network and disk are like."""
        delays = self._plan.delays
        self._world.network.conditions.delay_s = (0.00005, delays.get("network_ms", 1.0) / 1000)
        self._node.host.slowness = delays.get("sync_ms", 1.0)
        self._node.disk.faults.sync_s = (0.0, delays.get("sync_ms", 1.0) / 1000)

    @property
    def elapsed_ms(self) -> float:
        """The time since which the moments of faults are counted."""
        return (self._world.now - self._began) * 1000

    async def run(self) -> None:
        """All faults of the plan, each at its moment; returns when the last one is over."""
        self._began = began = self._world.now
        at_work: list[asyncio.Task[None]] = []
        for fault in self._plan.faults:
            await self._world.sleep(max(0.0, began + fault.at_ms / 1000 - self._world.now))
            self._scenario.note(fault.kind, str(fault), partition=None)
            at_work.append(asyncio.create_task(self._cause(fault)))
        await self._world.sleep(max(0.0, began + self._plan.span_ms / 1000 - self._world.now))
        if at_work:
            await asyncio.wait(at_work)
        for task in at_work:
            task.result()

    async def _cause(self, fault: Fault) -> None:
        kinds: Mapping[str, Callable[[Fault], Awaitable[None]]] = {
            "crash": self._crash,
            "power cut": self._crash,
            "strike": self._strike,
            "restart": self._restart,
            "kill": self._kill,
            "freeze": self._freeze,
            "cut": self._cut,
            "no_responses": self._drop_responses,
            "slow disk": self._slow,
            "full disk": self._full,
            "failing sync": self._fail_syncs,
            "clock jump": self._jump,
            "damage": self._damage,
        }
        await kinds[fault.kind](fault)

    # The node

    async def keep_node(self) -> None:
        """Start the node whenever it is down and may be up, as an operator does."""
        while True:
            if not self._node.running and not self._stopping and self._world.now >= self._down_until:
                cached = None if self._node.host.up else self._node.disk.used()
                try:
                    await self._node.start()
                    self._refused = None
                    if cached is not None:
                        self._scenario.note("lost", lost_bytes=max(0, cached - self._node.disk.used()))
                    self._scenario.note("started")
                except Crashed:
                    continue
                except Exception as problem:
                    self._refused = problem
                    self._scenario.note("does not start", f"{type(problem).__name__}: {problem}")
                    self._down_until = self._world.now + _AGAIN_S
            await self._world.sleep(_LOOK_S)

    def _take_down(self, for_ms: int) -> None:
        self._down_until = max(self._down_until, self._world.now + for_ms / 1000)

    async def _crash(self, fault: Fault) -> None:
        self._take_down(fault.for_ms)
        at_step = fault.amount or None
        if fault.kind == "power cut":
            self._node.power_cut(at_step=at_step)
        else:
            self._node.crash(at_step=at_step)

    async def _strike(self, fault: Fault) -> None:
        """Slow the disk, and take the power at the moment when a client gets an answer that something is done, or sees what others were not
        answered yet: was it on disk?"""
        struck = asyncio.Event()

        def listen(operation: Operation) -> None:
            if operation.ok and type(operation).__name__ == fault.target and self._tells_news(operation):
                struck.set()

        self._slowed(fault.amount, 1)
        self._scenario.history.listeners.append(listen)
        try:
            async with asyncio.timeout(fault.for_ms / 1000):
                await struck.wait()
            self._scenario.note("power cut", f"when {fault.target} was answered")
            self._node.power_cut()
        except TimeoutError:
            pass
        finally:
            self._scenario.history.listeners.remove(listen)
            self._slowed(fault.amount, -1)

    def _tells_news(self, operation: Operation) -> bool:
        """Whether an operation shows effects of operations that are still pending; one that reads nothing always does."""
        pending = [other for other in self._scenario.history.operations if other.returned is None]
        if isinstance(operation, Poll):
            sent = {send.value for send in pending if isinstance(send, Send)}
            return any(record.value in sent for record in operation.records)
        if isinstance(operation, CommittedPoll):
            ending = {value for other in pending if isinstance(other, Transaction) for _, value in other.values}
            return any(record.value in ending for record in operation.records)
        if isinstance(operation, GroupOffset):
            return any(
                isinstance(other, Transaction) and other.offsets.get(operation.partition) == operation.offset
                for other in pending
            )
        if isinstance(operation, ShareRequest):
            return bool(operation.said)
        if isinstance(operation, Committed):
            return any(isinstance(other, Commit) and other.offset == operation.offset for other in pending)
        return True

    async def _restart(self, fault: Fault) -> None:
        """An orderly stop."""
        if not self._node.running or self._node.node is None or self._stopping:
            return
        self._stopping = True
        self._take_down(fault.for_ms)
        try:
            await self._node.stop()
        except Crashed:
            pass
        finally:
            self._stopping = False

    async def heal(self) -> None:
        """Put everything right; returns when the node serves."""
        self._calm = True
        self._world.network.heal()
        self._node.host.wall_offset_ms = 0
        self._node.disk.steps_left = None  # a crash that waits for a step on the disk comes no more
        if self._damaged:
            self._node.crash()
            self._repair()
        self._down_until = 0.0
        while not self._node.running or self._node.exited is None or self._node.exited.done():
            await self._world.sleep(_LOOK_S)

    async def last_restart(self) -> None:
        """Once more through a restart, so that it shows what was only in memory."""
        kinds = ["crash", "restart"] if any(not rules.durable for rules in self._plan.rules.values()) else ["power cut"]
        fault = Fault(at_ms=0, kind=self._chance.choice(kinds), for_ms=100)
        self._scenario.note(fault.kind, "the last one")
        await self._cause(fault)
        await self._world.sleep(_LOOK_S)
        await self.heal()

    # Clients

    async def _kill(self, fault: Fault) -> None:
        self._scenario.kill_client(fault.target)

    async def _freeze(self, fault: Fault) -> None:
        process = self._scenario.process_of(fault.target)
        if process is not None and process.alive:
            process.freeze()
            await self._world.sleep(fault.for_ms / 1000)
            process.thaw()

    async def _cut(self, fault: Fault) -> None:
        network, node = self._world.network, self._node.name
        network.cut(fault.target)
        if fault.for_ms:
            network.silence(fault.target, node)
            network.silence(node, fault.target)
            await self._world.sleep(fault.for_ms / 1000)
            network.heal(fault.target, node)
            network.heal(node, fault.target)

    async def _drop_responses(self, fault: Fault) -> None:
        """What the client asks arrives; what it is answered does not, until this is over or the connection."""
        network, node = self._world.network, self._node.name
        network.silence(node, fault.target)
        await self._world.sleep(fault.for_ms / 1000)
        network.heal(node, fault.target)

    # The disk

    async def _slow(self, fault: Fault) -> None:
        self._slowed(fault.amount, 1)
        await self._world.sleep(fault.for_ms / 1000)
        self._slowed(fault.amount, -1)

    def _slowed(self, times: int, change: int) -> None:
        """The disk is slow for one reason more or less; the slowest counts."""
        self._slow_by[times] += change
        usual = self._plan.delays.get("sync_ms", 1.0)
        worst = max((times for times, count in self._slow_by.items() if count), default=1)
        self._node.host.slowness = max(usual, min(usual * worst, _SLOWEST))

    async def _full(self, fault: Fault) -> None:
        disk = self._node.disk
        disk.faults.capacity = disk.used() + fault.amount
        await self._world.sleep(fault.for_ms / 1000)
        disk.faults.capacity = None

    async def _fail_syncs(self, fault: Fault) -> None:
        """All syncs for a while, or so many in a hundred: one fails, and the next one might succeed."""
        disk = self._node.disk
        disk.failing_syncs, disk.faults.syncs = not fault.amount, fault.amount / 100
        self._take_down(fault.for_ms)
        await self._world.sleep(0.05 if not fault.amount else 0.3)
        disk.failing_syncs, disk.faults.syncs = False, 0.0

    async def _jump(self, fault: Fault) -> None:
        self._node.host.wall_offset_ms += fault.amount

    async def _damage(self, fault: Fault) -> None:
        """Flip a bit in a file while the node is down; what was in it comes back when everything is put right."""
        self._node.crash()
        self._take_down(fault.for_ms)
        if not self._node.host.up:
            return  # what the power cut left is decided when it is back
        paths = [
            path
            for path in paths_of(self._node.disk)
            if path.partition("-")[0] in self._scenario.partitions_of()
            and path.endswith(".log" if fault.target == "log" else fault.target)
            and path not in self._damaged
        ]
        if not paths:
            return
        path = self._chance.choice(paths)
        whole = content_of(self._node.disk, path) or b""
        if not whole:
            return
        at = (
            protected(whole, self._chance.randrange(len(whole)))
            if path.endswith(".log")
            else self._chance.randrange(len(whole))
        )
        damaged = whole[:at] + bytes([whole[at] ^ 1 << self._chance.randrange(8)]) + whole[at + 1 :]
        put(self._node.disk, path, damaged)
        self._damaged[path] = (whole, damaged)
        topic, _, number = path.partition("/")[0].rpartition("-")
        self._scenario.note("damage", f"{path} at byte {at}", partition=Partition(topic, int(number)))

    def _repair(self) -> None:
        """Put back what was damaged, where it still is as it was damaged."""
        for path, (whole, damaged) in self._damaged.items():
            now = content_of(self._node.disk, path)
            if now is not None and now[: len(damaged)] == damaged:
                put(self._node.disk, path, whole + now[len(damaged) :])
                self._scenario.note("repair", path)
        self._damaged.clear()


def paths_of(disk: SimFiles) -> list[str]:
    """All files of partitions."""
    return [f"{directory}/{name}" for directory in disk.list(".") if "-" in directory for name in disk.list(directory)]


def content_of(disk: SimFiles, path: str) -> bytes | None:
    """What a file holds, whether anything may be read of the disk now or not."""
    node = disk._find(path)
    return bytes(node.cached) if isinstance(node, Content) else None


def protected(batches: bytes, at: int) -> int:
    """A byte of a log whose damage can be noticed: this one, or one behind the leader epoch or the base offset, which no checksum covers in
    Kafka's format. A wrong base offset shows by the gap before it, but not where the log is compacted, nor in what is served as it lies."""
    start = 0
    while start + HEADER_BYTES <= len(batches):
        end = start + _BEFORE_LENGTH + 4 + int.from_bytes(batches[start + _BEFORE_LENGTH : start + _BEFORE_LENGTH + 4])
        if at < end:
            if at - start in _BASE_OFFSET:
                return at + _CRC
            return at + 4 if at - start in _LEADER_EPOCH else at
        start = end
    return at


def put(disk: SimFiles, path: str, content: bytes) -> None:
    """Let a file have this content, on disk too."""
    node = disk._find(path)
    assert isinstance(node, Content)
    node.cached, node.on_disk, node.dirty = bytearray(content), bytearray(content), set()
