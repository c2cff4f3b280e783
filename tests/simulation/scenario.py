"""Carrying out a plan: a node, its clients, what goes wrong, and how it must end.

What lives here: the run from the first topic to the last read, and its verdict. What does not: what clients do (`workloads`), faults
(`faults`), what a history must look like (`checks`).

First comes safety: anything may be down, and nothing that was acknowledged may be lost. Then liveness: nothing goes wrong any more, and
within bounded virtual time everything must work again, every client must end and every group must have read everything.
"""

import asyncio
import contextlib
import logging
import random
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import busway
from busway.errors import BuswayError
from busway_bus.log import producer_state
from busway_bus.testing.sim_process import PROCESS
from busway_bus.testing.world import Crashed, SimNode, SimProcess, Stuck, World
from busway_bus.transactions import fencing, transaction
from tests.simulation.admin_workloads import NAMES, administer, look_at, tune
from tests.simulation.checks import Anomaly, check, cut_for_damage
from tests.simulation.faults import Faults
from tests.simulation.group_workloads import GROUP, ask_committed, look, take_part
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
from tests.simulation.plan import ClientPlan, Plan
from tests.simulation.record_checks import OUT_OF_ORDER
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
"""After it, what nobody got an answer to has taken effect or never does."""
_STEPS_MAX: Final = 2_000_000
_LOOK_S: Final = 0.5
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
    "auditor": audit,
    "accountant": account,
}
_UNTIL_DRAINED: Final = {"member", "flow"}
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


def run_plan(plan: Plan, tell: Callable[[str], None] | None = None) -> Verdict:
    """Run it to its end and judge it.

    Args:
        tell: called with a line for every event.
    """
    random.seed(plan.seed)
    world = World(plan.seed, steps_max=_STEPS_MAX, strict=False)
    scenario = Scenario(plan, world, tell)
    found: list[Anomaly] = []
    listening = _Listening(scenario)
    logging.getLogger("busway").addHandler(listening)
    try:
        with _epochs_up_to(plan.epoch_max):
            world.run(scenario.play)
    except Stuck as problem:
        found.append(Anomaly("stuck", str(problem)))
    except Never as problem:
        found.append(Anomaly("never", str(problem)))
    except Exception:
        found.append(Anomaly("broken", traceback.format_exc()))
    finally:
        logging.getLogger("busway").removeHandler(listening)
    found += [Anomaly("mistake", problem) for problem in world.loop.problems]
    found += check(scenario.history, plan.rules)
    return Verdict(anomalies=found, counts=scenario.counts(), digest=world.trace.digest[:12], history=scenario.history)


@contextlib.contextmanager
def _epochs_up_to(epoch_max: int | None) -> Iterator[None]:
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
        self._partitions = {topic.name: topic.partitions for topic in plan.topics}
        self._running: dict[str, asyncio.Future[None]] = {}
        self._processes: dict[str, SimProcess] = {}
        self._flows = {client.topic for client in plan.clients if client.kind == "flow"}
        self._clients = {client.name: Client(client, self) for client in plan.clients}
        self.faults = Faults(self)

    def partitions_of(self) -> dict[str, int]:
        """Topics with their partitions."""
        return self._partitions

    def counts(self) -> Counter[str]:
        """What happened how often."""
        found = Counter(
            f"{type(operation).__name__.lower()} {operation.outcome}"
            for operation in self.history.operations
            if not isinstance(operation, Happening)
        )
        found.update(event.kind for event in self.history.of(Happening) if event.kind not in {"start", "warning"})
        found["records read"] = sum(len(poll.records) for poll in self.history.of(Poll))
        found["bytes lost"] = sum(event.lost_bytes for event in self.history.of(Happening))
        found["steps"] = self.world.loop.steps
        return found

    # The run

    async def play(self, world: World) -> None:
        """All of it.

        Raises:
            Never: something did not come right.
        """
        self.faults.weather()
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
        if any(client.kind == "member" for client in self.plan.clients):
            await self._in_time("the group reads everything", self._process("drain").run(self._drain))
        if self._flows:
            # Those who write what they read have ended: what is open there ends by its timeout.
            await self._nothing_is_open([place for place in self._all_partitions() if place.topic in self._flows])
            for topic in sorted(self._flows):
                drain = Client(ClientPlan(name="flow-drain", kind="accountant", operations=0, topic=topic), self)
                await self._in_time("everything is passed on", self._process("flow-drain").run(flows_are_done, drain))
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
        self._running[name] = process.start(WORKLOADS[client.plan.kind], client)

    def kill_client(self, name: str) -> None:
        """Kill it and start it again."""
        self._processes[name].crash()
        if not self._running[name].cancelled():
            self._running[name].exception()  # nobody waits for it
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
        async with busway.Admin(self.bootstrap) as admin:
            await admin.create_topics(
                busway.NewTopic(name=topic.name, partitions=topic.partitions, configs=dict(topic.configs))
                for topic in self.plan.topics
            )

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
                    told = await producer.send_and_wait(
                        partition.topic, send.value, send.key, partition=partition.number
                    )
                except BuswayError as problem:
                    self.history.end(send, Outcome.INFO, problem)
                    raise Never(f"a record for {partition} is not taken: {problem}") from None
                send.offset = told.offset
                self.history.end(send)
        finally:
            await producer.stop(timeout_s=1.0)

    async def _drain(self) -> None:
        """Return when the group has committed the end of everything."""
        client = Client(ClientPlan(name="drain", kind="looker", operations=0, topic="plain"), self)
        consumer = busway.Consumer(
            bootstrap_servers=self.bootstrap, client_id=client.begin_life(), group_id=GROUP, enable_auto_commit=False
        )
        await client.persist(consumer.start)
        try:
            ends = await consumer.end_offsets(client.partitions())
            for partition, end in ends.items():
                while await ask_committed(client, consumer, Partition(*partition)) != end:
                    await asyncio.sleep(_LOOK_S)
        finally:
            await consumer.stop()

    async def _nothing_is_open(self, partitions: list[Partition]) -> None:
        cut = {partition.topic for partition in cut_for_damage(self.history)}  # of a marker, maybe
        left = [partition for partition in partitions if partition.topic not in cut]
        work = self._process("stable").run(nothing_is_open, self.bootstrap, left)
        await self._in_time("no transaction is open any more", work)

    async def _read_committed(self, name: str) -> None:
        """What readers of committed records are given in the end, where there are transactions."""
        if not any(client.kind in {"transactor", "flow"} for client in self.plan.clients):
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
