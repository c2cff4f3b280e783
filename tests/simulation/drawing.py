"""Drawing the plan of a seed.

Here: plans in which anything may meet anything.
Not here: plans that look closely at one thing (`themes`), the plan itself (`plan`). Which kinds of faults exist at all,
and how often, is drawn first for each seed ("swarm testing"): with everything at once, everything hides everything
else.
"""

import random
from typing import Any, Final

from tests.simulation.plan import ClientPlan, Fault, Plan, TopicPlan
from tests.simulation.share_themes import BROKER as SHARES
from tests.simulation.share_themes import share_options
from tests.simulation.themes import Theme

SPAN_MS: Final = (4_000, 25_000)
"""How long faults may happen, in virtual time."""
FAULTS: Final = (
    "crash",
    "power cut",
    "strike",
    "restart",
    "kill",
    "freeze",
    "cut",
    "no_responses",
    "slow disk",
    "full disk",
    "failing sync",
    "clock jump",
    "damage",
)
_PORTIONS: Final = (0.0, 0.15, 0.3, 0.6)
"""How likely each kind of fault is to exist in a run: one of these for all kinds."""
_THEMED: Final = 0.7
"""How many plans have a theme."""
_OF_GROUPS: Final = 0.12
"""How many have one of `group_themes`; all others are as if there were none of these."""
_OF_ENDS: Final = 0.12
"""How many have one of `transaction_themes`, likewise."""
_OF_MORE_GROUPS: Final = 0.06
"""How many have one of `group_themes.MORE`, likewise."""
_OF_HANDOVERS: Final = 0.03
"""How many are about flows that give partitions up while they work on records, likewise."""


def draw(seed: int, about: str = "") -> Plan:
    """The plan of a seed; with `about` one of a theme about that (`themes.ABOUT`)."""
    chance = random.Random(f"plan/{seed}")
    if about:
        return Theme(chance).plan(seed, about=about)
    others = random.Random(f"groups/{seed}")
    if others.random() < _OF_GROUPS:
        return Theme(others).plan_of_groups(seed)
    ends = random.Random(f"ends/{seed}")
    if ends.random() < _OF_ENDS:
        return Theme(ends).plan_of_ends(seed)
    more = random.Random(f"more groups/{seed}")
    if more.random() < _OF_MORE_GROUPS:
        return Theme(more).plan_of_more_groups(seed)
    handovers = random.Random(f"handovers/{seed}")
    if handovers.random() < _OF_HANDOVERS:
        return Theme(handovers).plan_of_handovers(seed)
    if chance.random() < _THEMED:
        return Theme(chance).plan(seed)
    return _Drawing(chance).plan(seed)


class _Drawing:
    """Draws one plan."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def plan(self, seed: int) -> Plan:
        span_ms = self._chance.randint(*SPAN_MS)
        topics = self._topics()
        clients = self._clients([topic.name for topic in topics])
        return Plan(
            seed=seed,
            span_ms=span_ms,
            topics=topics,
            clients=clients,
            faults=self._faults(span_ms, clients),
            broker=self._broker(),
            delays=self._delays(),
        )

    def _maybe(self, likely: float) -> bool:
        return self._chance.random() < likely

    def _broker(self) -> dict[str, str]:
        choice = self._chance.choice
        return {
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": str(choice([1, 1, 2, 5])),
            "offsets.topic.segment.bytes": str(choice([400, 4_000, 104_857_600])),
            "group.initial.rebalance.delay.ms": str(choice([0, 0, 500, 3000])),
            "transaction.state.log.num.partitions": str(choice([1, 2, 5])),
            "transaction.state.log.segment.bytes": str(choice([400, 4_000, 104_857_600])),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(choice([500, 10_000])),
            "log.retention.check.interval.ms": str(choice([500, 2_000, 10_000])),
            "log.flush.offset.checkpoint.interval.ms": str(choice([300, 2_000, 10_000])),
            **SHARES,
        }

    def _delays(self) -> dict[str, float]:
        choice = self._chance.choice
        return {
            "network_ms": choice([0.2, 0.5, 2.0, 20.0]),
            "sync_ms": choice([0.1, 1.0, 5.0, 20.0]),
        }

    def _segment(self) -> dict[str, str]:
        # Offsets and time indexes of tiny segments are tried as often as a segment that is never full.
        size = self._chance.choice([300, 1_000, 5_000, None])
        return {} if size is None else {"internal.segment.bytes": str(size)}

    def _topics(self) -> tuple[TopicPlan, ...]:
        choice = self._chance.choice
        topics = [TopicPlan(name="plain", partitions=choice([1, 1, 2, 3]), configs=self._plain())]
        if self._maybe(0.3):
            topics.append(TopicPlan(name="second", partitions=choice([1, 2]), configs=self._plain()))
        if self._maybe(0.3):
            configs = {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": choice(["0.01", "0.5"]),
                "delete.retention.ms": choice(["0", "2000", "86400000"]),
                "internal.segment.bytes": choice(["300", "1000"]),
            }
            topics.append(TopicPlan(name="compacted", configs=configs))
        if self._maybe(0.3):
            configs = self._segment()
            if self._maybe(0.5):
                configs |= {"retention.bytes": choice(["0", "500", "2000"]), "internal.segment.bytes": "300"}
                configs |= {"file.delete.delay.ms": choice(["0", "1000"])}
            topics.append(TopicPlan(name="trimmed", configs=configs))
        if self._maybe(0.3):
            topics.append(
                TopicPlan(name="unsafe", configs={"durability": choice(["os", "interval"]), **self._segment()})
            )
        if self._maybe(0.25):
            configs = self._segment()
            topics.append(TopicPlan(name="ledger", partitions=choice([1, 2]), configs=configs))
            topics.append(TopicPlan(name="derived", partitions=choice([1, 2]), configs=configs))
        return tuple(topics)

    def _plain(self) -> dict[str, str]:
        configs = self._segment()
        if self._maybe(0.25):
            configs["max.message.bytes"] = self._chance.choice(["400", "1500"])
        return configs

    def _clients(self, topics: list[str]) -> tuple[ClientPlan, ...]:
        clients: list[ClientPlan] = []
        chance, choice = self._chance, self._chance.choice

        def add(kind: str, topic: str = "", operations: tuple[int, int] = (5, 25), **options: Any) -> None:
            number = 1 + sum(client.kind == kind for client in clients)
            clients.append(
                ClientPlan(
                    name=f"{kind}{number}",
                    kind=kind,
                    operations=chance.randint(*operations),
                    topic=topic,
                    options=options,
                )
            )

        for topic in topics:
            if topic == "derived":  # for who reads and writes in transactions
                continue
            for _ in range(choice([1, 1, 2])):
                add("producer", topic, (10, 60), **self._producer(topic))
            if self._maybe(0.5):
                add("reader", topic, (5, 20), pace_ms=choice([20, 200, 2000]))
        if self._maybe(0.6):
            cooperative = choice(["cooperative-sticky", "range"])
            for _ in range(choice([1, 2, 2, 3])):
                add(
                    "member",
                    "plain",
                    (5, 20),
                    strategy=cooperative if self._maybe(0.9) else "range",
                    session_ms=choice([6_000, 10_000]),
                    auto=self._maybe(0.25),
                    leaves=self._maybe(0.4),
                )
        if self._maybe(0.5):
            add("looker", "plain", (5, 20))
        if self._maybe(0.6):
            for _ in range(choice([1, 2])):
                add("admin", "", (5, 20), hangs_up=choice([0.0, 0.3, 0.7]), patience_ms=choice([3, 30, 300]))
        if "trimmed" in topics and self._maybe(0.7):
            add("trimmer", "trimmed", (2, 8))
        if "unsafe" in topics and self._maybe(0.5):
            add("tuner", "unsafe", (2, 6))
        if "ledger" in topics:
            for _ in range(choice([1, 2])):
                taken = {"transactional_id": "taken"} if self._maybe(0.3) else {}
                add("transactor", "ledger", (5, 20), more_topics=["derived"], **self._transactor(), **taken)
            for _ in range(choice([0, 1, 2])):
                add("flow", "ledger", (5, 15), output="derived", **self._transactor())
            add("auditor", choice(["ledger", "derived"]), (5, 20))
            if self._maybe(0.5):
                isolation = choice(["read_committed", "read_uncommitted"])
                add("accountant", "ledger", (5, 20), isolation_level=isolation)
        if self._maybe(0.2):
            topic = "ledger" if "ledger" in topics and self._maybe(0.5) else "plain"
            for number in range(choice([1, 1, 2])):
                options = self._sharer(f"share{number}", committed=topic == "ledger")
                for _ in range(choice([1, 2, 3])):
                    add("sharer", topic, (5, 20), **options)
                add("keeper", topic, (5, 20), group=f"share{number}", resets=choice([0.0, 0.3]))
        return tuple(clients)

    def _sharer(self, group: str, *, committed: bool) -> dict[str, Any]:
        return share_options(self._chance, group, committed=committed)

    def _transactor(self) -> dict[str, Any]:
        choice = self._chance.choice
        return {
            "records": choice([1, 3, 10]),
            "aborts": choice([0.1, 0.3, 0.6]),
            "dies": choice([0.0, 0.1]),
            "timeout_ms": choice([1_000, 10_000, 30_000]),
            "pace_ms": choice([5, 50, 1_000]),
            "linger_ms": choice([0, 0, 20]),
            "filler": choice([0, 100]),
            "explicit": self._maybe(0.25),
            "request_timeout_ms": choice([1_000, 5_000]),
        }

    def _producer(self, topic: str) -> dict[str, Any]:
        choice = self._chance.choice
        return {
            "linger_ms": choice([0, 0, 5, 100]),
            "batch_size": choice([200, 1_000, 16_384]),
            "compression_type": choice(["none", "none", "lz4", "zstd", "gzip"]),
            "delivery_timeout_ms": choice([2_000, 10_000, 120_000]),
            "request_timeout_ms": choice([1_000, 5_000, 30_000]),
            "burst": choice([1, 5, 20]),
            "filler": choice([0, 0, 100, 300]),
            "together": self._maybe(0.2),
            "dies": self._maybe(0.2),
            "near_wrap": self._maybe(0.2),
            "idempotent": self._maybe(0.85),
            "keys": choice([2, 5]) if topic == "compacted" else 0,
        }

    def _faults(self, span_ms: int, clients: tuple[ClientPlan, ...]) -> tuple[Fault, ...]:
        portion = self._chance.choice(_PORTIONS)
        # A strike is what finds answers that come too early; nothing else does so soon.
        kinds = [kind for kind in FAULTS if self._maybe(0.5 if kind == "strike" and portion else portion)]
        faults: list[Fault] = []
        for kind in kinds:
            times = [self._chance.randint(200, span_ms) for _ in range(self._chance.choice([1, 1, 2, 4]))]
            faults += [self._fault(kind, at_ms, clients) for at_ms in times]
        return tuple(sorted(faults, key=lambda fault: fault.at_ms))

    def _fault(self, kind: str, at_ms: int, clients: tuple[ClientPlan, ...]) -> Fault:
        choice, target = self._chance.choice, self._chance.choice(clients).name
        match kind:
            case "crash" | "power cut":
                at_step = choice([0, 0, 1, 2, 5, 20])  # on its disk, from then on: in the middle of something
                return Fault(at_ms=at_ms, kind=kind, for_ms=choice([0, 10, 500, 4_000, 12_000]), amount=at_step)
            case "restart" | "failing sync":
                amount = choice([0, 50]) if kind == "failing sync" else 0
                return Fault(at_ms=at_ms, kind=kind, for_ms=choice([0, 10, 500, 4_000, 12_000]), amount=amount)
            case "no_responses":
                return Fault(at_ms=at_ms, kind=kind, for_ms=choice([300, 3_000]), target=target)
            case "freeze":
                return Fault(at_ms=at_ms, kind=kind, for_ms=choice([500, 4_000, 15_000]), target=target)
            case "strike":
                target = choice(
                    ["Send", "Commit", "Commit", "Committed", "Committed", "Poll", "TopicDeed", "Transaction"]
                )
                return Fault(at_ms=at_ms, kind=kind, for_ms=3_000, amount=choice([100, 1_000]), target=target)
            case "kill":
                return Fault(at_ms=at_ms, kind=kind, target=target)
            case "cut":
                return Fault(at_ms=at_ms, kind=kind, for_ms=choice([0, 0, 300, 3_000]), target=target)
            case "slow disk":
                return Fault(at_ms=at_ms, kind=kind, for_ms=choice([500, 3_000]), amount=choice([20, 200, 1_000]))
            case "full disk":
                return Fault(at_ms=at_ms, kind=kind, for_ms=choice([300, 3_000]), amount=choice([0, 200, 2_000]))
            case "clock jump":
                return Fault(at_ms=at_ms, kind=kind, amount=choice([-3_600_000, -20_000, 20_000, 3_600_000]))
            case _:
                what = choice(["log", "log", "partition.metadata"])
                return Fault(at_ms=at_ms, kind=kind, for_ms=choice([100, 2_000]), target=what)
