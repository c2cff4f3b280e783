"""Play orders of calls on Busway and Apache Kafka, and say where they or a model disagree.

Here: both brokers, one order on both, many orders of a seed with the smallest one that fails.
Not here: the calls, the models.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Literal, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from busway_bus.testing.local_cluster import LocalCluster
from tests.integration.broker.illegal_callers import LEFT_OUT, Call
from tests.integration.broker.illegal_orders import GROUP_ORDERS, TRANSACTION_ORDERS
from tests.integration.broker.illegal_world import Line, World
from tests.interop.fuzz.ending import Ending, ending_of
from tests.interop.fuzz.group_model import GroupModel
from tests.interop.fuzz.transaction_model import TransactionModel
from tests.support.apache_kafka import ApacheKafka

SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.migration.policy": "bidirectional",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",  # the records are of 2023
}
T = TypeVar("T")
AGAIN: Final = 4
"""So many times an order has to fail again to count: who is assigned what may go by ids that a broker draws."""
EXPIRES_S: Final = 10.0
"""An order ends, without being compared, at a call that both brokers answer later than this."""
SHRINK_S: Final = 60.0
"""No further call is left out of a failing order after this time: an order may wait 20 s for a rebalance each time it is played."""
About = Literal["transactions", "groups"]
ORDERS: Final = {"transactions": TRANSACTION_ORDERS, "groups": GROUP_ORDERS}


class Difference(AssertionError):
    """An order whose answers or whose end differ; its text is the transcript."""


@dataclass
class Counts:
    """What a run has done."""

    sequences: int = 0
    calls: int = 0
    left_out: int = 0
    once: int = 0
    """Orders that failed, and did not when played again."""
    codes: Counter[str] = field(default_factory=Counter)


class Side:
    """One order on one broker, and the models that watch it."""

    def __init__(self, line: Line, number: int, topic: tuple[str, Any]) -> None:
        self.transactions = TransactionModel(topic)
        self.groups = GroupModel()
        self.world = World(line, number, topic, self._saw)

    def _saw(self, request: Any, version: int, answer: Any) -> None:
        self.transactions.saw(request, version, answer)
        self.groups.saw(request, version, answer)

    async def make(self, call: Call) -> tuple[str, ...]:
        """Make a call; its outcome, or what a model says against it."""
        self.world.calls += 1
        try:
            return await call.make(self.world)
        except AssertionError as problem:
            return (f"the model: {problem}",)
        except TimeoutError:
            return ("the model: no answer within the time-out",)

    async def end(self) -> Ending:
        """What is left, checked against the models."""
        ending = await ending_of(self.world)
        ending["the models"] = self.transactions.against(ending) + self.groups.against(ending)
        return ending


class Brokers:
    """One of each kind, for all orders of a run, on one event loop."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self._runner = asyncio.Runner()
        self._numbers = count()
        self._kafka = kafka
        self._lines: list[Line] = []
        self._cluster = LocalCluster(properties=SETTINGS, prompt=False)
        self.counts = Counts()

    def __enter__(self) -> "Brokers":
        self._runner.run(self._open())
        return self

    def __exit__(self, *problem: object) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _open(self) -> None:
        await self._cluster.start()
        for servers in (self._cluster.bootstrap_servers, self._kafka.bootstrap_servers):
            line = Line(servers)
            self._lines.append(line)
            await line.open()

    async def _close(self) -> None:
        for line in self._lines:
            line.close()
        await self._cluster.stop()

    def play(self, calls: list[Call]) -> None:
        """Make the calls on both, each when the one before is answered, and compare what is left.

        Raises:
            Difference: The brokers differ, or one differs from the models; holds what was answered until then.
        """
        self._runner.run(self._play(calls))

    async def _play(self, calls: list[Call]) -> None:
        number = next(self._numbers)
        name = f"written-{number}"
        ids = await asyncio.gather(*(line.make_topic(name) for line in self._lines))
        sides = [Side(line, number, (name, topic_id)) for line, topic_id in zip(self._lines, ids, strict=True)]
        self.counts.sequences += 1
        story: list[str] = []
        for call in calls:
            (ours, ours_s), (kafkas, kafkas_s) = await asyncio.gather(*(_timed(side.make(call)) for side in sides))
            self.counts.calls += 1
            if min(ours_s, kafkas_s) > EXPIRES_S:
                # Both waited for a rebalance that ended by a time-out: who is fenced, and before which answer, is a matter of their clocks.
                self.counts.left_out += 1
                return
            self.counts.left_out += ours == LEFT_OUT
            self.counts.codes.update(ours[:1])
            if ours != kafkas or ours[0].startswith("the model:"):
                raise Difference("\n".join([*story, f"{call}\n   ours: {ours}\n kafka: {kafkas}"]))
            story.append(f"{call}: {ours}")
        our_end, kafka_end = await asyncio.gather(*(side.end() for side in sides))
        differences = [
            f"at the end, {what}\n   ours: {our_end[what]}\n kafka: {kafka_end[what]}"
            for what in our_end
            if our_end[what] != kafka_end[what] or (what == "the models" and our_end[what])
        ]
        if differences:
            raise Difference("\n".join(story + differences))


async def _timed(call: Awaitable[T]) -> tuple[T, float]:
    """Return the answer and the seconds that it took."""
    began = time.monotonic()
    return await call, time.monotonic() - began


def hunt(brokers: Brokers, about: About, sequences: int, seed: int, report: Callable[[str], None]) -> None:
    """Play so many orders that a seed decides; `report` gets a transcript of each that fails, without the calls that it does not need.

    One that fails once, and not when played again, is printed alone: brokers draw the ids of classic members, and assign by their order.
    """

    @hypothesis.seed(seed)
    @settings(
        max_examples=sequences,
        database=None,
        derandomize=False,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(calls=ORDERS[about])
    def play(calls: list[Any]) -> None:
        problem = _failure(brokers, calls)
        if problem is None:
            return
        smallest = _smallest(brokers, calls)
        if smallest:
            report(f"SEED={seed} ({about}), {smallest}")
        else:
            brokers.counts.once += 1
            print(f"SEED={seed} ({about}), once, not when played again:\n{problem}", flush=True)

    play()


def _failure(brokers: Brokers, calls: list[Any]) -> Difference | None:
    try:
        brokers.play(calls)
    except Difference as problem:
        return problem
    return None


def _smallest(brokers: Brokers, calls: list[Any]) -> str:
    """The transcript of an order that fails, without the calls that it does not need; "" if it does not fail again."""
    calls = list(calls)
    failures = [_failure(brokers, calls) for _ in range(AGAIN)]
    if None in failures:
        return ""
    again = failures[-1]
    until = time.monotonic() + SHRINK_S
    for place in reversed(range(len(calls))):
        if time.monotonic() > until:
            break
        fewer = calls[:place] + calls[place + 1 :]
        if all(smaller := [_failure(brokers, fewer) for _ in range(2)]):
            calls, again = fewer, smaller[-1]
    return f"{len(calls)} calls:\n{again}"
