"""What one run of a simulated cluster consists of: nodes, settings, load, faults. A seed draws it whole.

Here: the plan as a value, its text form, and drawing one.
Not here: its nodes (`nodes`), faults (`faults`) and load (`load`). Which kinds of faults exist is drawn first for each
seed, and all is small: a few faults, short time-outs, tiny segments.
"""

import dataclasses
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from busway_bus.testing.simulated_nodes import BOTH_ROLES
from tests.simulation.plan import Fault

KINDS: Final = (
    "crash",
    "power cut",
    "all dark",
    "stop",
    "freeze",
    "cut",
    "partition",
    "one way",
    "ring",
    "half open",
    "slow link",
    "slow disk",
    "full disk",
    "failing sync",
    "damage",
    "wipe",
    "clock jump",
    "kill client",
)
_BESIDE_DAMAGE: Final = frozenset({"damage", "cut", "slow link", "slow disk", "clock jump", "kill client"})
"""Kinds in a run with damage: without them no other replica of the damaged records is lost or down."""
_ROLES: Final[tuple[tuple[float, tuple[str, ...]], ...]] = (
    (0.8, (BOTH_ROLES,) * 3),
    (0.07, (BOTH_ROLES,) * 5),
    (0.07, (BOTH_ROLES,) * 3 + ("broker",)),
    (0.06, (BOTH_ROLES,) * 2 + ("controller", "broker")),
)
"""Roles of the nodes, with their probability; three brokers at least. A broker that is no voter is the last node."""
_PORTIONS: Final = (0.15, 0.3, 0.6)
"""Probability of each kind of fault to exist in a run: one of these for all kinds."""
SPAN_MS: Final = (1_000, 5_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """A whole run.

    Attributes:
        seed: decides all that is not written down here.
        roles: process.roles of the nodes n1, n2 …
        partitions: of the topic.
        load: kinds of clients.
        span_ms: faults begin, and clients work, within it.
        delays: `network_ms`, `sync_ms`.
        epoch_max: last epoch of a producer instead of 32,767, so that a run uses all; None is as in Kafka.
        first_offset: of the topics' partitions.
    """

    seed: int
    roles: tuple[str, ...]
    partitions: int
    load: tuple[str, ...]
    span_ms: int
    faults: tuple[Fault, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    topic: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)
    delays: Mapping[str, float] = field(default_factory=dict)
    epoch_max: int | None = None
    first_offset: int = 0

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "ClusterPlan":
        decoded = json.loads(text)
        faults = tuple(Fault(**fault) for fault in decoded.pop("faults"))
        return cls(roles=tuple(decoded.pop("roles")), load=tuple(decoded.pop("load")), faults=faults, **decoded)


def draw(seed: int) -> ClusterPlan:
    """Draw the plan of a seed."""
    return _Drawing(random.Random(f"cluster/{seed}")).plan(seed)


class _Drawing:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def plan(self, seed: int) -> ClusterPlan:
        choice = self._chance.choice
        span_ms = self._chance.randint(*SPAN_MS)
        weights, roles = zip(*_ROLES, strict=True)
        nodes, load = self._chance.choices(roles, weights)[0], self._load()
        return ClusterPlan(
            seed=seed,
            roles=nodes,
            partitions=choice([1, 1, 2]),
            load=load,
            span_ms=span_ms,
            faults=self._faults(nodes, load, span_ms),
            settings=self._settings(),
            topic=self._topic(),
            client={
                "request_timeout_ms": choice([500, 1_000, 3_000]),
                "delivery_timeout_ms": choice([2_000, 5_000, 15_000]),
                "linger_ms": choice([0, 0, 5]),
                "pause_ms": choice([20, 100, 300]),
                "burst": choice([1, 1, 3]),
            },
            delays={"network_ms": choice([0.2, 1.0, 1.0, 20.0]), "sync_ms": choice([0.1, 1.0, 1.0, 20.0])},
            epoch_max=choice([None, None, 4, 7]),
            first_offset=choice([0, 0, 0, 2**31 - 9, 2**32 - 9]),
        )

    def _load(self) -> tuple[str, ...]:
        more = [kind for kind, likely in (("reader", 0.3), ("copier", 0.3), ("group", 0.2)) if self._maybe(likely)]
        return ("writer", *more)

    def _maybe(self, likely: float) -> bool:
        return self._chance.random() < likely

    def _settings(self) -> dict[str, str]:
        choice = self._chance.choice
        session_ms, member_ms = choice([500, 1_000, 3_000]), choice([1_000, 3_000])
        return {
            "auto.create.topics.enable": "false",
            "controller.quorum.election.timeout.ms": str(choice([100, 200, 500])),
            "controller.quorum.election.backoff.max.ms": str(choice([100, 300])),
            "controller.quorum.fetch.timeout.ms": str(choice([700, 1_000, 2_000])),
            "controller.quorum.request.timeout.ms": str(choice([500, 1_000])),
            "controller.quorum.retry.backoff.ms": str(choice([20, 50, 100])),
            "controller.socket.timeout.ms": str(choice([1_000, 3_000])),
            "broker.session.timeout.ms": str(session_ms),
            "broker.heartbeat.interval.ms": str(session_ms // 4),
            "replica.lag.time.max.ms": str(choice([700, 1_500, 5_000])),
            "replica.fetch.wait.max.ms": str(choice([50, 200, 500])),
            "replica.fetch.backoff.ms": str(choice([50, 200, 1_000])),
            "replica.socket.timeout.ms": str(choice([1_000, 3_000])),
            "replica.high.watermark.checkpoint.interval.ms": str(choice([200, 5_000])),
            "metadata.log.max.record.bytes.between.snapshots": str(choice([500, 5_000, 20_971_520])),
            "leader.imbalance.check.interval.seconds": str(choice([1, 300])),
            "group.consumer.min.session.timeout.ms": str(member_ms),
            "group.consumer.session.timeout.ms": str(member_ms),
            "group.consumer.min.heartbeat.interval.ms": str(member_ms // 5),
            "group.consumer.heartbeat.interval.ms": str(member_ms // 5),
            "offsets.topic.num.partitions": "1",
            "offsets.topic.segment.bytes": str(choice([400, 104_857_600])),
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.segment.bytes": str(choice([400, 104_857_600])),
        }

    def _topic(self) -> dict[str, str]:
        size = self._chance.choice([100, 300, 2_000, None])
        return {"min.insync.replicas": "2", **({} if size is None else {"internal.segment.bytes": str(size)})}

    def _faults(self, roles: tuple[str, ...], load: tuple[str, ...], span_ms: int) -> tuple[Fault, ...]:
        likely = self._chance.choice(_PORTIONS)
        kinds = [kind for kind in KINDS if self._maybe(likely)] or [self._chance.choice(KINDS)]
        if "damage" in kinds:
            kinds = [kind for kind in kinds if kind in _BESIDE_DAMAGE]
        impossible = {"kill client"} if len(load) == 1 else set()
        if "broker" not in roles:
            impossible.add("wipe")  # a voter whose vote is lost may vote again
        kinds = [kind for kind in kinds if kind not in impossible] or ["crash"]
        names = [f"n{number}" for number in range(1, len(roles) + 1)]
        sick = self._chance.choice([name for name, role in zip(names, roles, strict=True) if "broker" in role])
        count = self._chance.randint(1, 6)
        faults = [self._fault(self._chance.choice(kinds), names, sick, load, span_ms) for _ in range(count)]
        return tuple(sorted(faults, key=lambda fault: fault.at_ms))

    def _fault(self, kind: str, names: list[str], sick: str, load: tuple[str, ...], span_ms: int) -> Fault:
        """Draw a fault; all faults of disks are on the node `sick`."""
        chance = self._chance
        first, second = chance.sample(names, 2)
        amount, for_ms = 0, chance.choice([50, 500, 1_000, 2_000, 4_000])
        target = first
        match kind:
            case "one way" | "half open":
                target = f"{first}>{second}"
            case "crash" | "power cut":
                amount = chance.choice([0, 1, 3, 10, 30])
            case "all dark" | "ring":
                target = ""
            case "clock jump":
                for_ms, amount = 0, chance.choice([-3_600_000, -2_000, 2_000, 3_600_000])
            case "slow disk":
                amount = chance.choice([10, 100, 1_000])
            case "full disk":
                target, amount = sick, chance.choice([0, 100, 1_000])
            case "failing sync":
                target, for_ms, amount = sick, 300, chance.choice([10, 50, 100])
            case "damage":
                target = sick
            case "wipe":
                target = names[-1]
            case "slow link":
                target, amount = f"{first}>{second}", chance.choice([50, 300, 900])
            case "cut":
                for_ms = 0
            case "kill client":
                target, for_ms = chance.choice(load[1:]), 0
        return Fault(at_ms=chance.randrange(span_ms), kind=kind, for_ms=for_ms, amount=amount, target=target)
