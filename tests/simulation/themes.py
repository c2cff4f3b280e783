"""Plans with a theme: few clients and faults, timed so that one kind of mistake shows soon.

Here: one method for each theme.
Not here: plans in which anything may meet anything (`drawing`). A theme knows what a mistake needs to show (a retry
while its batch is not on disk yet, and then a power cut); moments, sizes and settings are drawn, so that two seeds of a
theme are not alike.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tests.simulation import group_themes, share_themes, transaction_themes
from tests.simulation.plan import ClientPlan, Fault, Plan, TopicPlan

_BROKER: Final = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class Theme:
    """Draws one plan with one theme."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._clients: list[ClientPlan] = []
        self._faults: list[Fault] = []
        self._configs: Mapping[str, str] = {}
        self._topic = "plain"
        self._partitions = 1
        self._more_topics: list[TopicPlan] = []
        self._broker: Mapping[str, str] = {}
        self._epoch_max: int | None = None
        self._levels: Mapping[str, int] = {}
        self._delays: Mapping[str, float] = {}
        self._span_ms = 6_000
        self._sync_ms = chance.choice([0.5, 1.0, 5.0])

    def plan(self, seed: int, *, about: str = "") -> Plan:
        """The plan of a seed, with a theme that is drawn, of those `about` something (`ABOUT`) where that is said."""
        return self._drawn(seed, ABOUT[about] if about else THEMES)

    def plan_of_groups(self, seed: int) -> Plan:
        """The plan of a seed, with a theme of `group_themes`."""
        return self._drawn(seed, group_themes.THEMES)

    def plan_of_more_groups(self, seed: int) -> Plan:
        """The plan of a seed, with another theme of `group_themes`."""
        return self._drawn(seed, group_themes.MORE)

    def plan_of_ends(self, seed: int) -> Plan:
        """The plan of a seed, with a theme of `transaction_themes`."""
        return self._drawn(seed, transaction_themes.THEMES)

    def plan_of_handovers(self, seed: int) -> Plan:
        """The plan of a seed in which flows give partitions up while they work on records."""
        return self._drawn(seed, transaction_themes.ABOUT["handovers"])

    def _drawn(self, seed: int, themes: "Sequence[Callable[[Theme], None]]") -> Plan:
        self._chance.choice(themes)(self)
        span_ms = max([self._span_ms, *(fault.at_ms for fault in self._faults)])
        return Plan(
            seed=seed,
            span_ms=span_ms,
            topics=(
                TopicPlan(name=self._topic, partitions=self._partitions, configs=self._configs),
                *self._more_topics,
            ),
            clients=tuple(self._clients),
            faults=tuple(sorted(self._faults, key=lambda fault: fault.at_ms)),
            broker={
                **_BROKER,
                "log.flush.offset.checkpoint.interval.ms": str(self._chance.choice([300, 10_000])),
                **self._broker,
            },
            delays={"network_ms": self._chance.choice([0.2, 0.5, 2.0]), "sync_ms": self._sync_ms, **self._delays},
            epoch_max=self._epoch_max,
            levels=self._levels,
        )

    # The parts

    def _maybe(self, likely: float) -> bool:
        return self._chance.random() < likely

    def _client(self, kind: str, operations: tuple[int, int], **options: Any) -> str:
        name = f"{kind}{1 + sum(client.kind == kind for client in self._clients)}"
        count = self._chance.randint(*operations)
        self._clients.append(
            ClientPlan(name=name, kind=kind, operations=count, topic=self._topic, options=options),
        )
        return name

    def _producer(self, operations: tuple[int, int], **options: Any) -> str:
        choice = self._chance.choice
        usual = {
            "linger_ms": 0,
            "batch_size": 16_384,
            "delivery_timeout_ms": 120_000,
            "request_timeout_ms": choice([1_000, 30_000]),
            "burst": choice([1, 1, 5]),
            "filler": choice([0, 100]),
        }
        return self._client("producer", operations, **usual | options)

    def _fault(self, at_ms: int, kind: str, for_ms: int = 0, amount: int = 0, target: str = "") -> None:
        self._faults.append(Fault(at_ms=max(at_ms, 200), kind=kind, for_ms=for_ms, amount=amount, target=target))

    def _moments(self, count: tuple[int, ...]) -> list[int]:
        """Of a few rounds, spread over the run."""
        rounds = self._chance.choice(count)
        part = self._span_ms // (rounds + 1)
        return [part * number + self._chance.randint(0, part) for number in range(rounds)]

    # The themes

    def lost_end(self) -> None:
        """A reader is away while a power cut takes the end of an unsafe topic and others write there."""
        randint, choice = self._chance.randint, self._chance.choice
        self._topic, self._span_ms = "unsafe", 11_000
        self._configs = {"durability": choice(["os", "interval"])}
        if self._maybe(0.3):
            self._configs = {**self._configs, "internal.segment.bytes": "1000"}
        for _ in range(choice([1, 2])):
            self._producer((60, 120), burst=1, idempotent=self._maybe(0.5), dies=self._maybe(0.2))
        readers = [self._client("reader", (15, 30)) for _ in range(choice([1, 2]))]
        at_ms = randint(2_000, 4_000)
        for reader in readers:
            away = choice(["freeze", "freeze", "cut"])
            self._fault(at_ms - randint(10, 300), away, randint(3_000, 6_000), target=reader)
        self._fault(at_ms, "power cut", choice([0, 10]))
        if self._maybe(0.3):
            self._fault(randint(5_000, self._span_ms), choice(["power cut", "restart", "crash"]))

    def repeated(self) -> None:
        """A batch is sent again while it is not on disk yet; the power goes as soon as anything is acknowledged."""
        randint, choice = self._chance.randint, self._chance.choice
        self._sync_ms = choice([2.0, 5.0])
        producers = [self._producer((20, 40), linger_ms=choice([0, 5])) for _ in range(choice([1, 2]))]
        for at_ms in self._moments((2, 3)):
            self._fault(at_ms, "strike", 3_000, 1_000, "Send")
            for _ in range(choice([1, 2, 3])):
                self._fault(at_ms + randint(50, 1_500), "cut", choice([0, 0, 300]), target=choice(producers))

    def unanswered(self) -> None:
        """Answers are lost until the batch is given up, or sent again."""
        randint, choice = self._chance.randint, self._chance.choice
        producers = [
            self._producer((20, 40), delivery_timeout_ms=2_000, idempotent=self._maybe(0.9))
            for _ in range(choice([1, 2]))
        ]
        if self._maybe(0.5):
            self._client("reader", (5, 15))
        for at_ms in self._moments((1, 2, 3)):
            self._fault(at_ms, "no_responses", randint(500, 4_000), target=choice(producers))
            if self._maybe(0.3):
                self._fault(
                    at_ms + randint(50, 3_000), choice(["crash", "power cut", "restart", "cut"]), target=producers[0]
                )

    def committed(self) -> None:
        """Everybody looks at a group's offsets while commits are not on disk yet; the power goes when one was answered."""
        choice = self._chance.choice
        self._sync_ms = choice([2.0, 5.0])
        self._producer((20, 40), burst=5)
        for _ in range(choice([1, 2])):
            self._client("member", (20, 40), strategy="range", session_ms=6_000, auto=False, leaves=self._maybe(0.5))
        for _ in range(choice([1, 2])):
            self._client("looker", (40, 60))
        for at_ms in self._moments((2, 3)):
            self._fault(at_ms, "strike", 3_000, 1_000, choice(["Committed", "Committed", "Commit"]))

    def failed_sync(self) -> None:
        """A sync fails, the next one may not; then the power goes."""
        randint, choice = self._chance.randint, self._chance.choice
        self._configs = choice([{}, {"internal.segment.bytes": "1000"}])
        for _ in range(choice([1, 2])):
            self._producer((30, 60))
        for at_ms in self._moments((2, 3)):
            self._fault(at_ms, "failing sync", choice([0, 500]), 50)
            self._fault(at_ms + randint(60, 800), "power cut", choice([0, 500]))

    def wrap(self) -> None:
        """Sequence numbers run over their end, with retries and restarts around it."""
        randint, choice = self._chance.randint, self._chance.choice
        producers = [self._producer((8, 20), near_wrap=True, dies=self._maybe(0.5)) for _ in range(choice([1, 2]))]
        for at_ms in self._moments((0, 1, 2)):
            kind = choice(["cut", "no_responses", "crash", "power cut", "restart"])
            self._fault(at_ms, kind, randint(0, 1_500), target=choice(producers))

    def names(self) -> None:
        """Files and directories come and go, and the power goes in between: are their names on disk?"""
        randint, choice = self._chance.randint, self._chance.choice
        self._configs = {"internal.segment.bytes": choice(["300", "1000"])}
        self._producer((20, 40), filler=100)
        self._client("admin", (15, 30), hangs_up=0.0, patience_ms=300)
        for at_ms in self._moments((2, 3, 4)):
            if self._maybe(0.5):
                self._fault(at_ms, "power cut", choice([0, 500]), randint(0, 30))
            else:
                self._fault(at_ms, "strike", 2_000, choice([1, 100]), choice(["TopicDeed", "Send"]))

    def sessions(self) -> None:
        """Members come, go, stand still and are killed while the wall clock is set: who owns what, who may commit, when does a session end?"""
        randint, choice = self._chance.randint, self._chance.choice
        self._producer((20, 40), burst=5)
        strategy = choice(["range", "range", "cooperative-sticky"])
        members = [
            self._client("member", (8, 15), strategy=strategy, session_ms=6_000, auto=False, leaves=self._maybe(0.5))
            for _ in range(choice([2, 2, 3]))
        ]
        if self._maybe(
            0.5
        ):  # when all is put right the clock goes back, and who was killed just before is a member still
            self._fault(randint(200, 2_000), "clock jump", amount=choice([3_600_000, 3_600_000, -20_000]))
            self._fault(self._span_ms - randint(0, 1_000), "kill", target=choice(members))
            return
        for at_ms in self._moments((1, 2)):
            self._fault(at_ms, choice(["kill", "kill", "freeze"]), randint(500, 9_000), target=choice(members))

    def made_safe(self) -> None:
        """A topic becomes safe while its end is not on disk."""
        randint, choice = self._chance.randint, self._chance.choice
        self._topic, self._configs, self._sync_ms = "unsafe", {"durability": "os"}, 5.0
        self._producer((40, 80))
        for _ in range(choice([1, 2])):
            self._client("reader", (20, 40))
        self._client("tuner", (4, 8))
        for at_ms in self._moments((1, 2, 3)):
            self._fault(at_ms, "slow disk", randint(500, 3_000), choice([200, 1_000]))

    def trimmed(self) -> None:
        """Records are deleted from the beginning of small segments, and nodes start on what is left."""
        choice = self._chance.choice
        self._topic, self._configs = (
            "trimmed",
            {"internal.segment.bytes": choice(["300", "500"]), "file.delete.delay.ms": choice(["0", "1000"])},
        )
        self._producer((20, 40), filler=choice([0, 50]))
        self._client("reader", (5, 10))
        self._client("trimmer", (6, 12))
        for at_ms in self._moments((0, 1, 2)):
            self._fault(at_ms, choice(["restart", "crash", "power cut"]))

    def hung_up(self) -> None:
        """Administrators hang up before they are answered, and the node starts again on what it made of that."""
        choice = self._chance.choice
        self._sync_ms = choice([1.0, 5.0, 20.0])
        for _ in range(choice([1, 2])):
            self._client("admin", (15, 30), hangs_up=0.7, patience_ms=choice([3, 30, 100]))
        for at_ms in self._moments((1, 2)):
            self._fault(at_ms, choice(["restart", "crash", "power cut"]))

    def damaged(self) -> None:
        """A bit flips in what a node starts on."""
        choice = self._chance.choice
        self._configs = choice([{}, {"internal.segment.bytes": "1000"}])
        self._producer((20, 40))
        self._client("reader", (5, 10))
        for at_ms in self._moments((1, 2)):
            self._fault(at_ms, "damage", 100, target=choice(["log", "log", "partition.metadata"]))
            if self._maybe(0.3):
                self._fault(at_ms + 1_000, choice(["restart", "crash", "power cut"]))

    # Transactions

    def _transactional(self, *, partitions: int = 1) -> None:
        choice = self._chance.choice
        self._topic = "ledger"
        self._configs = choice([{}, {}, {"internal.segment.bytes": choice(["500", "2000"])}])
        if self._maybe(0.3):  # a power cut may take what was acknowledged; open for ever nothing may be
            self._configs = {**self._configs, "durability": choice(["os", "os", "interval"])}
        self._more_topics = [TopicPlan(name="derived", partitions=partitions, configs=self._configs)]
        self._epoch_max = choice([None, None, 4, 7])
        self._broker = {
            "transaction.state.log.num.partitions": str(choice([1, 1, 2])),
            "transaction.state.log.segment.bytes": choice(["400", "4000", "104857600"]),
            "offsets.topic.segment.bytes": choice(["400", "104857600"]),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": choice(["500", "2000"]),
        }

    def _transactor(self, operations: tuple[int, int], **options: Any) -> str:
        choice = self._chance.choice
        usual = {
            "records": choice([1, 3, 6]),
            "aborts": choice([0.1, 0.3, 0.6]),
            "dies": choice([0.0, 0.0, 0.15]),
            "timeout_ms": choice([1_000, 5_000, 20_000]),
            "pace_ms": choice([5, 50, 500]),
            "linger_ms": choice([0, 0, 20]),
            "filler": choice([0, 100]),
            "explicit": self._maybe(0.25),
            "request_timeout_ms": choice([1_000, 5_000]),
        }
        return self._client("transactor", operations, **usual | options)

    def in_transactions(self) -> None:
        """Transactions over several partitions are committed and aborted; nodes and producers die at every moment."""
        choice = self._chance.choice
        self._transactional(partitions=choice([1, 2]))
        self._sync_ms = choice([0.5, 2.0, 5.0])
        transactors = [self._transactor((10, 25), more_topics=["derived"]) for _ in range(choice([1, 2, 3]))]
        if self._maybe(0.4):
            self._producer((10, 20))
        for _ in range(choice([1, 2])):
            self._client("auditor", (10, 25))
        if self._maybe(0.4):
            self._client("reader", (5, 15))
        for at_ms in self._moments((1, 2, 3)):
            kind = choice(
                ["strike", "strike", "crash", "power cut", "restart", "kill", "cut", "no_responses", "failing sync"]
            )
            if kind == "strike":
                self._fault(
                    at_ms, kind, 3_000, choice([100, 1_000]), choice(["Transaction", "Transaction", "CommittedPoll"])
                )
            else:
                step = choice([0, 1, 2, 5, 20]) if kind in {"crash", "power cut"} else 0
                self._fault(at_ms, kind, choice([0, 500, 3_000]), step, choice(transactors))

    def taken_over(self) -> None:
        """Producers with one transactional id take it from each other; frozen ones come back when theirs has timed out."""
        randint, choice = self._chance.randint, self._chance.choice
        self._transactional()
        taken = [
            self._transactor((10, 20), transactional_id="taken", timeout_ms=choice([1_000, 1_000, 20_000]))
            for _ in range(choice([2, 2, 3]))
        ]
        self._client("auditor", (10, 25))
        for at_ms in self._moments((2, 3, 4)):
            kind = choice(["freeze", "freeze", "no_responses", "kill", "cut"])
            self._fault(at_ms, kind, choice([300, 1_500, 4_000]), target=choice(taken))
        if self._maybe(0.5):
            self._fault(
                randint(500, self._span_ms),
                choice(["restart", "crash", "power cut"]),
                choice([0, 500]),
                choice([0, 2, 9]),
            )

    def passed_on(self) -> None:
        """Records are read, made into others and their offsets sent, all in one transaction, while members of the group come and go."""
        choice = self._chance.choice
        self._transactional(partitions=choice([1, 2]))
        self._sync_ms = choice([0.5, 2.0, 5.0])
        if self._maybe(0.7):
            self._transactor((10, 20))
        if self._maybe(0.5):
            self._producer((20, 40), burst=5)
        elif not any(client.kind == "transactor" for client in self._clients):
            self._transactor((10, 20))
        flows = [
            self._client(
                "flow",
                (10, 20),
                output="derived",
                aborts=choice([0.1, 0.4]),
                timeout_ms=choice([1_000, 10_000, 20_000]),
                pace_ms=choice([5, 50, 500]),
                request_timeout_ms=choice([1_000, 5_000]),
                explicit=self._maybe(0.25),
            )
            for _ in range(choice([1, 2, 2, 3]))
        ]
        for level in choice([["read_committed"], ["read_uncommitted"], ["read_committed", "read_uncommitted"]]):
            self._client("accountant", (20, 50), isolation_level=level)
        for at_ms in self._moments((1, 2, 3)):
            kind = choice(
                ["strike", "crash", "power cut", "restart", "kill", "kill", "freeze", "freeze", "cut", "no_responses"]
            )
            if kind == "strike":
                self._fault(at_ms, kind, 3_000, choice([100, 1_000]), choice(["Transaction", "GroupOffset"]))
            else:
                step = choice([0, 1, 2, 5, 20]) if kind in {"crash", "power cut"} else 0
                self._fault(at_ms, kind, choice([0, 500, 3_000, 8_000]), step, choice(flows))


THEMES: Final = (
    Theme.lost_end,
    Theme.repeated,
    Theme.unanswered,
    Theme.committed,
    Theme.failed_sync,
    Theme.wrap,
    Theme.names,
    Theme.sessions,
    Theme.made_safe,
    Theme.trimmed,
    Theme.hung_up,
    Theme.damaged,
    Theme.in_transactions,
    Theme.taken_over,
    Theme.passed_on,
    share_themes.shared,
    share_themes.shared_slowly,
    share_themes.shared_transactions,
    share_themes.shared_anew,
)
ABOUT: Final[Mapping[str, Sequence[Callable[[Theme], None]]]] = {
    "transactions": (Theme.in_transactions, Theme.taken_over, Theme.passed_on),
    "shares": (
        share_themes.shared,
        share_themes.shared_slowly,
        share_themes.shared_transactions,
        share_themes.shared_anew,
        share_themes.given_up,
        share_themes.shared_in_turns,
    ),
    **group_themes.ABOUT,
    **transaction_themes.ABOUT,
}
"""Themes that look at one part of the product."""
