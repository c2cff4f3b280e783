"""Carrying out a plan: a node, its clients, what goes wrong, and how it must end.

Here: the run from the first topic to the last read, and its verdict.
Not here: what clients do (`workloads`), faults (`faults`), what a history must look like (`checks`).

First comes safety: anything may be down, and nothing that was acknowledged may be lost. Then liveness: nothing goes wrong any more, and
within bounded virtual time everything must work again, every client must end and every group must have read everything.
"""

import asyncio
import contextlib
import functools
import logging
import random
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import busway
from busway.errors import BuswayError
from busway_bus.coordinator.marker_writer import LocalMarkerWriter
from busway_bus.log import producer_state
from busway_bus.metadata import bootstrap
from busway_bus.testing.sim_process import PROCESS
from busway_bus.testing.world import Crashed, SimNode, SimProcess, Stuck, World
from busway_bus.transactions import fencing, transaction
from tests.simulation.admin_workloads import NAMES, administer, look_at, tune
from tests.simulation.checks import Anomaly, check, cut_for_damage
from tests.simulation.faults import Faults
from tests.simulation.fencing_watch import watched_fencing
from tests.simulation.group_workloads import ask_committed, group_of, look, take_part
from tests.simulation.hasty_workloads import hurry
from tests.simulation.history import (
    Deed,
    FinalRead,
    Happening,
    History,
    Outcome,
    Partition,
    Poll,
    Send,
    TopicDeed,
    value_of,
)
from tests.simulation.letter_workloads import letters_of
from tests.simulation.modern_workloads import all_are_owned, grow, is_modern, topics_of
from tests.simulation.plan import ClientPlan, Plan
from tests.simulation.record_checks import OUT_OF_ORDER
from tests.simulation.service_workloads import (
    Live,
    live_rows,
    read_service,
    serve,
    service_is_done,
    source_of,
    topics_of_service,
)
from tests.simulation.share_history import ShareLetters
from tests.simulation.share_workloads import groups_are_done, groups_of, keep, limit_of, nothing_is_left, prepare, share
from tests.simulation.transaction_workloads import (
    account,
    audit,
    flows_are_done,
    nothing_is_open,
    pass_on,
    read_committed,
    transact,
)
from tests.simulation.workloads import Client, produce, read, seen, trim

LIVENESS_S: Final = 240.0
"""Virtual time in which everything must come right: twice the delivery timeout, and the longest session."""
QUIET_S: Final = 61.0
"""After it, what was not answered has taken effect or never does."""
_STEPS_MAX: Final = 2_000_000
_LOOK_S: Final = 0.5
_NOTICED_S: Final = 5.0
"""Instances of a service that have lost their partitions while faults came have noticed by then."""
WORKLOADS: Final[Mapping[str, Callable[[Client], Awaitable[None]]]] = {
    "producer": produce,
    "reader": read,
    "member": take_part,
    "looker": look,
    "admin": administer,
    "trimmer": trim,
    "tuner": tune,
    "transactor": transact,
    "flow": pass_on,
    "hasty": hurry,
    "auditor": audit,
    "accountant": account,
    "sharer": share,
    "keeper": keep,
    "grower": grow,
    "service": serve,
}
_UNTIL_DRAINED: Final = {"member", "flow", "service", "sharer"}
"""Clients that work until everything is read."""


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What became of a run.

    Attributes:
        counts: what happened how often: nothing is shown by a run in which nothing did.
        digest: hash of all events, the same for the same plan.
    """

    anomalies: list[Anomaly]
    counts: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    history: History


class Never(Exception):
    """Something did not come right in time; the text says what."""


class Mistaken(Exception):
    """A workload died of its own mistake; the text names the client and has its traceback."""


def run_plan(plan: Plan, tell: Callable[[str], None] | None = None) -> Verdict:
    """Run it to its end and judge it.

    Args:
        tell: called with a line for every event.
    """
    random.seed(plan.seed)
    world = World(plan.seed, steps_max=_STEPS_MAX, strict=False)
    scenario = Scenario(plan, world, tell)
    anomalies: list[Anomaly] = []
    listening = _Listening(scenario)
    logging.getLogger("busway").addHandler(listening)
    try:
        with epochs_up_to(plan.epoch_max), _at_levels(plan.levels), _slow_markers(plan), watched_fencing(scenario):
            world.run(scenario.play)
    except Stuck as problem:
        anomalies.append(Anomaly("stuck", str(problem)))
    except Never as problem:
        anomalies.append(Anomaly("never", str(problem)))
    except Mistaken as problem:
        anomalies.append(Anomaly("workload", f"seed {plan.seed}: {problem}"))
    except Exception:
        anomalies.append(Anomaly("broken", traceback.format_exc()))
    finally:
        logging.getLogger("busway").removeHandler(listening)
    anomalies += [Anomaly("mistake", problem) for problem in world.loop.problems]
    anomalies += check(scenario.history, plan.rules)
    return Verdict(
        anomalies=anomalies, counts=scenario.counts(), digest=world.trace.digest[:12], history=scenario.history
    )


@contextlib.contextmanager
def epochs_up_to(epoch_max: int | None) -> Iterator[None]:
    """Let producers have few epochs, so that one run uses them up; None is as many as there are."""
    places = ((fencing, "EPOCH_MAX"), (transaction, "EPOCH_MAX"), (producer_state, "LAST_EPOCH"))
    before = [getattr(module, name) for module, name in places]
    for module, name in places if epoch_max is not None else ():
        setattr(module, name, epoch_max)
    try:
        yield
    finally:
        for (module, name), value in zip(places, before, strict=True):
            setattr(module, name, value)


@contextlib.contextmanager
def _at_levels(levels: Mapping[str, int]) -> Iterator[None]:
    """Format directories with these levels of features; 0 is without the feature."""
    usual = bootstrap.levels_of_new_clusters

    def formatted() -> dict[str, int]:
        return {name: level for name, level in {**usual(), **levels}.items() if level}

    bootstrap.levels_of_new_clusters = formatted
    try:
        yield
    finally:
        bootstrap.levels_of_new_clusters = usual


@contextlib.contextmanager
def _slow_markers(plan: Plan) -> Iterator[None]:
    """Delay the markers of a transaction by up to `marker_ms`, as for many partitions."""
    longest_ms, chance = plan.delays.get("marker_ms", 0.0), random.Random(f"markers/{plan.seed}")
    usual = LocalMarkerWriter.write

    async def write(self: LocalMarkerWriter, marker: Any, partitions: Any, **options: Any) -> Any:
        await asyncio.sleep(chance.random() * longest_ms / 1000)
        return await usual(self, marker, partitions, **options)

    if longest_ms:
        LocalMarkerWriter.write = write  # type: ignore[method-assign]
    try:
        yield
    finally:
        LocalMarkerWriter.write = usual  # type: ignore[method-assign]


class _Listening(logging.Handler):
    """Puts what a node warns of into the history, and what a producer is refused that it then mends by itself."""

    def __init__(self, scenario: "Scenario") -> None:
        super().__init__(logging.WARNING)
        self._scenario = scenario

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get(None)
        if process is None or process.dead:
            return
        text = record.getMessage()
        if process.host.name == self._scenario.node.name:
            self._scenario.history.note(Happening(process=process.name, kind="warning", text=text))
        elif record.name == "busway.producer" and OUT_OF_ORDER in text:
            self._scenario.history.note(Happening(process=process.name, kind="refused", text=text))


class Scenario:
    """One run; what its clients share (`workloads.Stage`).

    Attributes:
        settled: set when no more faults come.
        drained: set when groups have read everything.
    """

    def __init__(self, plan: Plan, world: World, tell: Callable[[str], None] | None) -> None:
        self.plan = plan
        self.world = world
        self.history = History(lambda: world.now * 1000, tell)
        self.node: SimNode = world.node("n1", {"busway.insecure": "true", **plan.broker})
        self.bootstrap = self.node.bootstrap_servers
        self.settled = asyncio.Event()
        self.drained = asyncio.Event()
        self.tables: dict[str, Any] = {}
        self._partitions = {topic.name: topic.partitions for topic in plan.topics}
        self._live: Live = []
        self._running: dict[str, asyncio.Future[None]] = {}
        self._mistake: asyncio.Future[None] | None = None
        self._processes: dict[str, SimProcess] = {}
        self._flows = {client.topic for client in plan.clients if client.kind == "flow"}
        self._clients = {client.name: Client(client, self) for client in plan.clients}
        self.faults = Faults(self)

    @property
    def clients(self) -> Collection[Client]:
        """All of the plan."""
        return self._clients.values()

    def partitions_of(self) -> dict[str, int]:
        """Topics with their partitions."""
        return self._partitions

    def counts(self) -> Counter[str]:
        """What happened how often."""
        totals = Counter(
            f"{type(operation).__name__.lower()} {operation.outcome}"
            for operation in self.history.operations
            if not isinstance(operation, Happening)
        )
        totals.update(event.kind for event in self.history.of(Happening) if event.kind not in {"start", "warning"})
        totals["records read"] = sum(len(poll.records) for poll in self.history.of(Poll))
        letters = {(read.group, letter) for read in self.history.of(ShareLetters) for letter in read.letters}
        totals["records given up"] = len(letters)
        totals["bytes lost"] = sum(event.lost_bytes for event in self.history.of(Happening))
        totals["steps"] = self.world.loop.steps
        return totals

    # The run

    async def play(self, world: World) -> None:
        """All of it, or up to the first mistake of a workload.

        Raises:
            Never: something did not come right.
            Mistaken: a workload died.
        """
        self._mistake = world.loop.create_future()
        playing = asyncio.ensure_future(self._play(world))
        await asyncio.wait([playing, self._mistake], return_when=asyncio.FIRST_COMPLETED)
        if self._mistake.done():
            playing.cancel()
            await asyncio.wait([playing])
            self._mistake.result()
        await playing

    async def _play(self, world: World) -> None:
        self.faults.apply_delays()
        await self.node.start()
        await self._process("setup").run(self._make_topics)
        keeper = asyncio.create_task(self.faults.keep_node())
        for client in self.plan.clients:
            self.start_client(client.name)
        await self.faults.run()
        self.note("phase", "no more faults")
        await self._in_time("the node serves again", self.faults.heal())
        self.settled.set()
        await self._process("probe").run(self._probe)
        members = [client.name for client in self.plan.clients if client.kind in _UNTIL_DRAINED]
        await self._in_time("clients end", self._ended([name for name in self._running if name not in members]))
        for group in sorted({group_of(client) for client in self._members()}):
            await self._group_is_done(group)
        if self._flows:
            # Those who write what they read have ended: what is open there ends by its timeout.
            await self._nothing_is_open([place for place in self._all_partitions() if place.topic in self._flows])
            for topic in sorted(self._flows):
                drain = Client(ClientPlan(name="flow-drain", kind="accountant", operations=0, topic=topic), self)
                await self._in_time("everything is passed on", self._process("flow-drain").run(flows_are_done, drain))
        await self._service_is_done()
        await self._share_groups_are_done("share-drain1")
        self.drained.set()
        await self._in_time("members end", self._ended(members))
        self.note("converged")
        await self._read_committed("committed1")
        await self._process("final1").run(self._read_all, {})
        if any(deed.outcome is Outcome.INFO for deed in self.history.of(TopicDeed)):
            await world.sleep(QUIET_S)
        await self._process("looker-on1").run(self._look_at_topics)
        await self._in_time("the node comes back", self.faults.last_restart())
        await self._process("looker-on2").run(self._look_at_topics)
        await self._nothing_is_left_of_shares()
        await self._process("final2").run(self._read_all, {"max_partition_fetch_bytes": 300, "max_poll_records": 7})
        await self._read_committed("committed2")
        keeper.cancel()

    def note(self, kind: str, text: str = "", **more: Any) -> None:
        """Something that no client asked."""
        self.history.note(Happening(process="world", kind=kind, text=text, **more))

    async def _in_time(self, what: str, work: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(LIVENESS_S):
                await work
        except TimeoutError:
            raise Never(f"{what}: not within {LIVENESS_S:.0f} s; {self._waiting()}") from None

    def _waiting(self) -> str:
        left = [name for name, future in self._running.items() if not future.done()]
        return f"still at work: {', '.join(left) or 'nobody'}\n{self.world.loop.stacks()}"

    # Clients

    def _process(self, name: str) -> SimProcess:
        return self.world.process(name)

    def start_client(self, name: str) -> None:
        """Begin the work of a client, or begin it again after it was killed."""
        client = self._clients[name]
        process = self._processes[name] = self._process(name)
        running = self._running[name] = process.start(WORKLOADS[client.plan.kind], client)
        running.add_done_callback(functools.partial(self._ended_well, name))

    def _ended_well(self, name: str, ended: "asyncio.Future[None]") -> None:
        """Let the run fail where a client died of anything but its end."""
        problem = None if ended.cancelled() else ended.exception()
        if problem is None or isinstance(problem, Crashed) or self._mistake is None or self._mistake.done():
            return
        text = "".join(traceback.format_exception(problem))
        self._mistake.set_exception(Mistaken(f"the workload of {name} died of its own mistake:\n{text}"))

    def kill_client(self, name: str) -> None:
        """Kill it and start it again."""
        self._processes[name].crash()
        if not self._running[name].cancelled():
            self._running[name].exception()  # no task waits for it
        self.start_client(name)

    def process_of(self, name: str) -> SimProcess | None:
        """Where a client lives now."""
        return self._processes.get(name)

    async def _ended(self, names: list[str]) -> None:
        for name in names:
            while True:
                future = self._running[name]
                try:
                    await asyncio.shield(future)
                except Crashed:
                    if self._running[name] is not future:
                        continue
                break

    # What the run does itself

    async def _make_topics(self) -> None:
        topics = [
            busway.NewTopic(name=topic.name, partitions=topic.partitions, configs=dict(topic.configs))
            for topic in self.plan.topics
        ]
        async with busway.Admin(self.bootstrap) as admin:
            await admin.create_topics(topics + topics_of_service(self.plan))
            await prepare(admin, self.plan.clients)
        for group, client in groups_of(self.plan.clients).items():
            self.note("share group", f"{group} {limit_of(client)}")
            if letters_of(client):
                self.note("dead letters", group)

    def _all_partitions(self) -> list[Partition]:
        return [Partition(name, number) for name, count in self._partitions.items() for number in range(count)]

    async def _probe(self) -> None:
        """One more record into every partition: it must be taken."""
        probe = Client(ClientPlan(name="probe", kind="producer", operations=1), self)
        producer = busway.Producer(self.bootstrap, client_id=probe.begin_life(), delivery_timeout_ms=60_000)
        await probe.persist(producer.start)
        try:
            for number, partition in enumerate(self._all_partitions()):
                value = value_of(probe.process, number, partition)
                send = self.history.begin(Send(process=probe.process, partition=partition, value=value, key=b"probe"))
                try:
                    metadata = await producer.send_and_wait(
                        partition.topic, send.value, send.key, partition=partition.number
                    )
                except BuswayError as problem:
                    self.history.end(send, Outcome.INFO, problem)
                    raise Never(f"a record for {partition} is not taken: {problem}") from None
                send.offset = metadata.offset
                self.history.end(send)
        finally:
            await producer.stop(timeout_s=1.0)

    def _members(self, group: str | None = None) -> list[Client]:
        members = [client for client in self._clients.values() if client.plan.kind == "member"]
        return [client for client in members if group in {None, group_of(client)}]

    async def _group_is_done(self, group: str) -> None:
        await self._in_time(f"{group} reads everything", self._process("drain").run(self._drain, group))
        if any(is_modern(client) or client.option("protocols") for client in self._members(group)):
            owned = self._process("owners").run(all_are_owned, self.bootstrap, group, self._members(group))
            await self._in_time(f"every partition of {group} has one owner", owned)

    async def _drain(self, group: str) -> None:
        """Return when a group has committed the end of everything that its members subscribe to."""
        for topic in sorted({topic for client in self._members(group) for topic in topics_of(client)}):
            options = {"group": group}
            client = Client(ClientPlan(name="drain", kind="looker", operations=0, topic=topic, options=options), self)
            consumer = busway.Consumer(
                bootstrap_servers=self.bootstrap,
                client_id=client.begin_life(),
                group_id=group,
                enable_auto_commit=False,
            )
            await client.persist(consumer.start)
            try:
                for partition in client.partitions():
                    # The end is looked for again each time: what was on its way may be there by now.
                    while (await ask_committed(client, consumer, Partition(*partition)) or 0) != (
                        await consumer.end_offsets([partition])
                    )[partition]:
                        await asyncio.sleep(_LOOK_S)
            finally:
                await consumer.stop()

    async def _service_is_done(self) -> None:
        if (source := source_of(self.plan)) is None:
            return
        await self._nothing_is_open([place for place in self._all_partitions() if place.topic == source])
        client = Client(ClientPlan(name="service-drain", kind="auditor", operations=0, topic=source), self)
        work = self._process("service-drain").run(service_is_done, client)
        await self._in_time("the service has handled everything", work)
        await self.world.sleep(_NOTICED_S)
        self._live = live_rows(self.tables)

    async def _share_groups_are_done(self, name: str) -> None:
        """Return when every share group is done with everything."""
        groups = groups_of(self.plan.clients)
        if not groups:
            return
        topics = {client.topic for client in groups.values()}
        await self._nothing_is_open([place for place in self._all_partitions() if place.topic in topics])
        drain = Client(ClientPlan(name=name, kind="keeper", operations=0), self)
        done = self._process(name).run(groups_are_done, drain, sorted(groups))
        await self._in_time("share groups are done with everything", done)

    async def _nothing_is_left_of_shares(self) -> None:
        """After the last restart they are as far as before, and have nothing left to give."""
        for group, client in groups_of(self.plan.clients).items():
            name = f"nobody-{group}"
            plan = ClientPlan(name=name, kind="sharer", operations=0, topic=client.topic, options={"group": group})
            asking = self._process(name).run(nothing_is_left, Client(plan, self))
            await self._in_time("a share group answers", asking)
        await self._share_groups_are_done("share-drain2")

    async def _nothing_is_open(self, partitions: list[Partition]) -> None:
        cut = {partition.topic for partition in cut_for_damage(self.history)}  # of a marker, maybe
        left = [partition for partition in partitions if partition.topic not in cut]
        work = self._process("stable").run(nothing_is_open, self.bootstrap, left)
        await self._in_time("no transaction is open any more", work)

    async def _read_committed(self, name: str) -> None:
        """What readers of committed records are given in the end, where there are transactions."""
        if (source := source_of(self.plan)) is not None:
            places = [
                Partition(topic.name, number)
                for topic in topics_of_service(self.plan)
                for number in range(topic.partitions)
            ]
            await self._nothing_is_open([*self._all_partitions(), *places])
            client = Client(ClientPlan(name=f"service-{name}", kind="auditor", operations=0, topic=source), self)
            work = self._process(client.process).run(read_service, client, self._live)
            await self._in_time("what the service has left behind is read", work)
        if not any(client.kind in {"transactor", "flow", "hasty"} for client in self.plan.clients):
            return
        await self._nothing_is_open(self._all_partitions())
        topic = next(iter(sorted(self._flows)), "")
        client = Client(ClientPlan(name=name, kind="auditor", operations=0, topic=topic), self)
        reading = self._process(name).run(read_committed, client, self._all_partitions())
        await self._in_time("readers of committed records reach the end", reading)

    async def _look_at_topics(self) -> None:
        admin = busway.Admin(self.bootstrap)
        await admin.start()
        try:
            for name in NAMES:
                for setting in (False, True):
                    deed = self.history.begin(TopicDeed(process="looker-on", topic=name, deed=Deed.LOOK))
                    await look_at(admin, deed, setting=setting)
                    self.history.end(deed)
        finally:
            await admin.stop()

    async def _read_all(self, options: Mapping[str, Any]) -> None:
        consumer = busway.Consumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", **options)
        await consumer.start()
        try:
            for partition in self._all_partitions():
                await self._in_time(f"reading {partition} to its end", self._read(consumer, partition))
        finally:
            await consumer.stop()

    async def _read(self, consumer: busway.Consumer, partition: Partition) -> None:
        name = PROCESS.get().name
        operation = self.history.begin(FinalRead(process=name, partition=partition))
        key = busway.TopicPartition(*partition)
        operation.end = (await consumer.end_offsets([key]))[key]
        await consumer.assign([key])
        records = []
        while await consumer.position(key) < operation.end:
            records += seen(await consumer.getmany(timeout_ms=500))
        operation.start = (await consumer.beginning_offsets([key]))[key]  # last: retention goes on
        operation.records = [record for record in records if record.offset >= operation.start]
        self.history.end(operation)
