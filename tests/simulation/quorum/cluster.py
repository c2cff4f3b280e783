"""Controllers of one cluster, the parts that a node makes of them, in a simulated world with faults, under a seed.

Here: one controller with its disk, clients, faults, a run.
Not here: what must hold (`invariants`). `run(seed)` is one run: faults, then none, and within `HEALED_WITHIN_S` a
command must be carried out that all nodes follow.
"""

import asyncio
import contextlib
import functools
from dataclasses import replace
from typing import Any

from busway_bus.kernel.decision import Decision
from busway_bus.log.flusher import Flusher
from busway_bus.log.partition_log import PartitionLog
from busway_bus.log.store import LogStore
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.records import TOPIC, ConfigRecord
from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.driver import QuorumDriver
from busway_bus.quorum.election_file import ElectionFile
from busway_bus.quorum.metadata_log import MetadataLog
from busway_bus.quorum.metadata_snapshots import MetadataSnapshots, SnapshotLimits
from busway_bus.quorum.ready import SnapshotPart
from busway_bus.quorum.settings import QuorumSettings
from busway_bus.quorum.snapshot_download import SnapshotDownload
from busway_bus.quorum.voters import ReplicaKey, VoterSet
from busway_bus.testing.sim_disk import Content
from busway_bus.testing.sim_files import SimFiles
from busway_bus.testing.sim_process import PROCESS
from busway_bus.testing.world import Crashed, SimProcess, World
from busway_protocol.compile import decode, encode
from busway_protocol.errors import KafkaError
from busway_protocol.schema import info_of
from tests.simulation.quorum.invariants import Invariants, Violation

SETTINGS = QuorumSettings(
    election_timeout_ms=300,
    fetch_timeout_ms=600,
    election_backoff_max_ms=300,
    request_timeout_ms=500,
    fetch_max_wait_ms=200,
)
FAULTS_S = 5.0
HEALED_WITHIN_S = 20.0
BROKER_RESOURCE = 4
OBSERVER = 100
STEPS_MAX = 400_000


class Controller:
    """One host: its disk, and what runs there now."""

    def __init__(self, cluster: "Cluster", node_id: int) -> None:
        self.cluster, self.id = cluster, node_id
        self.name = f"c{node_id}"
        self.disk = SimFiles(cluster.world.chance(f"{self.name}/disk"))
        self.disk.waits = self._wait
        self.process: SimProcess | None = None
        self.metadata: MetadataLog | None = None
        self.driver: QuorumDriver | None = None
        self.checked_offset = 0
        self.lives = 0

    def _wait(self, seconds: float) -> None:
        self.cluster.world.host(self.name).waited_s += seconds

    @property
    def up(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.alive and self.metadata is not None

    @property
    def log(self) -> PartitionLog:
        """Its metadata log."""
        assert self.metadata is not None
        return self.metadata.log

    def on_disk(self, path: str) -> bytes:
        """What of a file a power cut leaves."""
        node = self.disk._find(path)
        directory = self.disk._find(TOPIC + "-0")
        name = path.rpartition("/")[2]
        kept = getattr(directory, "on_disk", {}).get(name)
        return bytes(node.on_disk) if isinstance(node, Content) and kept is node else b""

    def has_on_disk(self, content: bytes) -> bool:
        """Whether a segment has this, as a power cut leaves it."""
        names = getattr(self.disk._find(f"{TOPIC}-0"), "on_disk", {})
        return any(content in self.on_disk(f"{TOPIC}-0/{name}") for name in names if name.endswith(".log"))

    async def start(self) -> None:
        """Begin a life, on the disk as it is."""
        self.lives += 1
        self.disk.power_on()
        self.process = self.cluster.world.process(self.name)
        with contextlib.suppress(Crashed):
            await self.process.run(self._begin)

    def wipe(self) -> None:
        """Give it an empty disk, as a new node has."""
        self.disk = SimFiles(self.cluster.world.chance(f"{self.name}/disk/{self.lives}"))
        self.disk.waits = self._wait

    async def _begin(self) -> None:
        machine = PROCESS.get().machine
        store = LogStore(self.disk, node_id=self.id, new_ids=machine.uuid4)
        flusher = Flusher()
        drivers: list[QuorumDriver] = []

        def make(partition_log: PartitionLog, snapshots: MetadataSnapshots) -> QuorumDriver:
            drivers.append(
                QuorumDriver(
                    me=ReplicaKey(self.id, store.identity.directory_id),
                    voters=VoterSet.fixed(self.cluster.voter_ids),
                    partition_log=partition_log,
                    truncate=lambda offset: flusher.cut(
                        partition_log, functools.partial(store.cut, (TOPIC, 0), offset, machine.wall_ms())
                    ),
                    restart=lambda offset: flusher.cut(
                        partition_log, functools.partial(store.begin_at, (TOPIC, 0), offset, machine.wall_ms())
                    ),
                    snapshots=snapshots,
                    download=FragileDownload(self, snapshots),
                    election_file=ElectionFile(self.disk, f"{TOPIC}-0"),
                    flusher=flusher,
                    machine=machine,
                    transport=Wire(self),
                    settings=self.cluster.settings,
                    cluster_id="a cluster",
                    on_lost=self._lost,
                )
            )
            return drivers[0]

        limits = SnapshotLimits(
            bytes_max=self.cluster.snapshot_bytes, interval_ms=0, retention_bytes=self.cluster.retention_bytes
        )
        self.metadata = MetadataLog(store, flusher, machine, limits, make)
        self.metadata.allow_snapshots(lambda: False)
        self.driver = drivers[0]
        self.checked_offset = self.driver.core.high_watermark
        self.metadata.watch(self._published)
        self.driver.begin(Watched(self, self.metadata))

    def _lost(self, problem: Exception) -> None:
        raise Violation(f"node {self.id}: {problem}")

    def _published(self) -> None:
        assert self.metadata is not None
        images = self.metadata.images
        self.cluster.check(lambda seen: seen.publishes(self, images.image, images.covered.end_offset))

    def crash(self, *, power: bool) -> None:
        """End its life: what it has written stays in the page cache, unless the power goes."""
        if self.process is None or not self.process.alive:
            return
        self.cluster.world.crash(self.process.process, "killed" if power else "power cut")
        self.disk.power_off()
        self.metadata = self.driver = None
        if not power:
            self.disk.cut_power(self.cluster.world.chance(f"{self.name}/cut/{self.lives}").randrange)
            self.disk.power_off()


class FragileDownload(SnapshotDownload):
    """A download whose node crashes at one of its steps on the disk, now and then."""

    def __init__(self, controller: Controller, snapshots: MetadataSnapshots) -> None:
        super().__init__(controller.disk, f"{TOPIC}-0", snapshots)
        self._controller = controller

    def _may_crash(self, when: str, steps: int) -> None:
        controller, cluster = self._controller, self._controller.cluster
        chance = cluster.world.chance(f"{controller.name}/{when}/{controller.lives}/{cluster.invariants.installed}")
        if not cluster.faults or chance.random() >= cluster.fragile:
            return
        power = chance.random() < 0.5

        def crash() -> None:
            controller.crash(power=power)
            asyncio.get_running_loop().call_later(chance.uniform(0.05, 0.5), cluster.restart, controller)

        steps = chance.choice((3, 8, steps))
        controller.disk.steps_left, controller.disk.on_cut = chance.randrange(steps), crash

    def write(self, part: SnapshotPart) -> None:
        """See `quorum.snapshot_download`."""
        super().write(part)
        if part.last:
            self._may_crash("check", 3)

    def name(self, snapshot: SnapshotId) -> None:
        """See `quorum.snapshot_download`."""
        self._may_crash("name", 20)
        super().name(snapshot)


class Watched:
    """The owner of a log, looked at."""

    def __init__(self, controller: Controller, metadata: MetadataLog) -> None:
        self._controller, self._metadata = controller, metadata

    def leads(self, first_offset: int, end_offset: int, epoch: int) -> None:
        """See `metadata.committing.Owner`."""
        self._controller.cluster.check(lambda seen: seen.leads(self._controller, epoch))
        self._metadata.leads(first_offset, end_offset, epoch)

    def lost(self) -> None:
        """See `metadata.committing.Owner`."""
        self._metadata.lost()

    def withdrawn(self, offset: int, problem: KafkaError) -> None:
        """See `metadata.committing.Owner`."""
        self._metadata.withdrawn(offset, problem)

    def loaded(self, snapshot: SnapshotId) -> None:
        """See `metadata.committing.Owner`."""
        self._controller.cluster.check(lambda seen: seen.loads(self._controller, snapshot))
        self._metadata.loaded(snapshot)

    def committed(self, offset: int) -> None:
        """See `metadata.committing.Owner`."""
        self._controller.cluster.check(lambda seen: seen.commits(self._controller, offset))
        self._metadata.committed(offset)


class Wire:
    """What gets from one controller to the others; a request that does not get there is None after a while."""

    def __init__(self, controller: Controller) -> None:
        self._from = controller

    async def ask(self, node_id: int, request: Any) -> Any:
        """There and back, as bytes."""
        cluster, here = self._from.cluster, self._from
        cluster.check(lambda seen: seen.sends(here, None, request))
        there = cluster.controllers[node_id]
        try:
            async with asyncio.timeout(SETTINGS.request_timeout_ms / 1000):
                await cluster.passes(here, there)
                if not there.up or there.process is None or there.driver is None:
                    return None
                answer = await there.process.run(there.driver.answer, wired(request))
                cluster.check(lambda seen: seen.sends(there, request, answer))
                await cluster.passes(there, here)
                return wired(answer)
        except (TimeoutError, Crashed, KafkaError):
            return None

    async def close(self) -> None:
        """There is nothing to close."""


def wired(message: Any) -> Any:
    """A message as it arrives."""
    version = info_of(type(message)).max_version
    return decode(type(message), version, encode(message, version))


class Cluster:
    """One run."""

    def __init__(self, seed: int, *, voters: int = 3) -> None:
        self.world = World(seed, steps_max=STEPS_MAX)
        self.chance = self.world.chance("plan")
        self.voter_ids = tuple(range(1, voters + 1))
        self.snapshot_bytes = self.chance.choice((1, 300, 1_000_000))
        self.drop = self.chance.choice((0.0, 0.0, 0.05, 0.2))
        self.delay_s = self.chance.choice((0.001, 0.01, 0.1))
        self.kinds = self.chance.sample(
            ("kill", "power", "power_all", "isolate", "one_way", "freeze", "slow", "full"), 4
        )
        self.fault_every_s = self.chance.choice((0.3, 0.8, 2.0))
        self.settings = replace(SETTINGS, fetch_snapshot_max_bytes=self.chance.choice((40, 300, 1_000_000)))
        self.ids = (*self.voter_ids, OBSERVER) if self.chance.random() < 0.3 else self.voter_ids
        self.retention_bytes = self.chance.choice((0, 0, 10_000))
        self.fragile = self.chance.choice((0.0, 0.5))
        self.cut: set[tuple[int, int]] = set()
        self.faults = True
        self.controllers = {node_id: Controller(self, node_id) for node_id in self.ids}
        self.invariants = Invariants(self.controllers.values(), self.voter_ids)
        self.violation: Exception | None = None
        self.numbers = 0
        self.refused = 0

    def check(self, look: Any) -> None:
        """Look at something; the first violation is what the run ends with."""
        try:
            look(self.invariants)
        except Violation as violation:
            self.violation = self.violation or violation

    async def passes(self, sender: Controller, receiver: Controller) -> None:
        """Wait as long as a message takes; for ever where it is lost."""
        await asyncio.sleep(self.chance.uniform(0.0002, self.delay_s if self.faults else 0.002))
        lost = self.faults and self.chance.random() < self.drop
        if lost or (sender.id, receiver.id) in self.cut:
            await asyncio.get_running_loop().create_future()

    # Clients

    async def command(self, controller: Controller) -> bool:
        """Have one command carried out; answers whether it was."""
        if not controller.up or controller.process is None or controller.metadata is None:
            return False
        self.numbers += 1
        number = self.numbers

        def decide(image: ClusterImage) -> Decision[int]:
            record = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=f"k{number}", value="v")
            return Decision(records=(record,), reply=len(image.configs.get((BROKER_RESOURCE, ""), {})) + 1)

        try:
            count = await controller.process.run(controller.metadata.run, decide)
        except (Crashed, KafkaError):
            self.refused += 1
            return False
        self.check(lambda seen: seen.answered(number, count))
        return True

    async def client(self) -> None:
        """Ask the leader, or any controller, again and again."""
        while self.faults:
            leading = [
                controller
                for controller in self.controllers.values()
                if controller.up and controller.driver and controller.driver.leading
            ]
            chosen = self.chance.choice(
                leading if leading and self.chance.random() < 0.8 else list(self.controllers.values())
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2):
                    await self.command(chosen)
            await asyncio.sleep(self.chance.uniform(0, 0.05))

    # Faults

    async def harm(self) -> None:
        """One fault after the other."""
        while self.faults:
            await asyncio.sleep(self.chance.uniform(0, 2 * self.fault_every_s))
            await self._fault(self.chance.choice((*self.kinds, "heal")))

    async def _fault(self, kind: str) -> None:
        controller = self.controllers[self.chance.choice(self.ids)]
        leading = [other for other in self.controllers.values() if other.up and other.driver and other.driver.leading]
        if leading and self.chance.random() < 0.5:
            controller = self.chance.choice(leading)
        match kind:
            case "kill" | "power":
                controller.crash(power=kind == "kill")
                asyncio.get_running_loop().call_later(self.chance.uniform(0.05, 1.5), self.restart, controller)
            case "power_all":
                for each in self.controllers.values():
                    each.crash(power=False)
                    asyncio.get_running_loop().call_later(self.chance.uniform(0.05, 1.5), self.restart, each)
            case "isolate":
                self.cut = {(a, b) for a in self.ids for b in self.ids if (a == controller.id) != (b == controller.id)}
            case "one_way":
                self.cut.add((controller.id, self.chance.choice(self.ids)))
            case "freeze" if controller.process is not None and controller.process.alive:
                controller.process.freeze()
                asyncio.get_running_loop().call_later(self.chance.uniform(0.1, 1.5), controller.process.thaw)
            case "slow":
                controller.disk.faults.sync_s = self.chance.choice(((0.0, 0.0), (0.0, 0.05), (0.05, 0.3)))
            case "full":
                controller.disk.faults.capacity = controller.disk.used() + self.chance.randrange(2_000)
                asyncio.get_running_loop().call_later(self.chance.uniform(0.1, 1.5), self._make_room, controller)
            case _:
                self.cut = set()

    def _make_room(self, controller: Controller) -> None:
        controller.disk.faults.capacity = None

    def restart(self, controller: Controller) -> None:
        """Begin a new life, if it has none."""
        if not controller.up:
            self._starting = asyncio.ensure_future(self._start(controller))

    async def _start(self, controller: Controller) -> None:
        controller.disk.faults.capacity = None
        if not controller.up:
            if controller.id == OBSERVER and self.faults and self.chance.random() < 0.5:
                controller.wipe()
            await controller.start()

    # A run

    async def run(self, _: World) -> None:
        """Faults, then none: and all must work again."""
        for controller in self.controllers.values():
            await controller.start()
        work = [asyncio.ensure_future(each) for each in (self.client(), self.client(), self.client(), self.harm())]
        await asyncio.sleep(FAULTS_S)
        self.faults = False
        await asyncio.wait(work)
        self.cut = set()
        for controller in self.controllers.values():
            controller.disk.faults.capacity, controller.disk.faults.sync_s = None, (0.0, 0.0)
            if controller.process is not None:
                controller.process.thaw()
            await self._start(controller)
        try:
            async with asyncio.timeout(HEALED_WITHIN_S):
                await self._until_level()
        except TimeoutError:
            shown = {
                controller.id: controller.driver and (controller.driver.core.role.name, controller.driver.epoch)
                for controller in self.controllers.values()
            }
            self.violation = self.violation or Violation(
                f"{HEALED_WITHIN_S} s after the last fault not all is followed: {shown}"
            )
        images = [
            controller.metadata.image for controller in self.controllers.values() if controller.metadata is not None
        ]
        self.check(lambda seen: seen.at_the_end(images[0].configs.get((BROKER_RESOURCE, ""), {})))

    async def _until_level(self) -> None:
        """Until a command is carried out, and everybody follows it."""
        done = False
        while True:
            for controller in self.controllers.values():
                if not done and controller.up and controller.driver is not None and controller.driver.leading:
                    done = await self.command(controller)
            ends = {
                controller.metadata.images.covered.end_offset
                for controller in self.controllers.values()
                if controller.metadata
            }
            leaders = [
                controller
                for controller in self.controllers.values()
                if controller.driver is not None and controller.driver.leading
            ]
            newest = {controller.driver.end_offset for controller in leaders if controller.driver is not None}
            if done and len(leaders) == 1 and newest == ends:
                return
            await asyncio.sleep(0.05)


def run(seed: int, *, voters: int = 3) -> Cluster:
    """One seed.

    Raises:
        Violation: an invariant does not hold, or the controllers do not recover.
    """
    cluster = Cluster(seed, voters=voters)
    try:
        cluster.world.run(cluster.run)
    except Exception as problem:
        raise Violation(f"seed {seed}: {type(problem).__name__}: {problem}") from problem
    if cluster.violation is not None:
        raise Violation(f"seed {seed}: {cluster.violation} ({cluster.kinds})")
    return cluster
