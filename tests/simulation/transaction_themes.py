"""Plans about the ends of transactions, compaction, weaker durability, and directories of an earlier `transaction.version`.

Here: these themes.
Not here: all others, and what a theme is made of (`themes`). They are drawn apart from the others, so that the plan of
a seed that is not about them stays as it was.
"""

from typing import TYPE_CHECKING, Final

from tests.simulation.plan import TopicPlan

if TYPE_CHECKING:
    from tests.simulation.themes import Theme


def _settings(theme: "Theme", partitions: int) -> None:
    choice = theme._chance.choice
    theme._topic, theme._partitions = "ledger", partitions
    theme._broker = {
        "transaction.state.log.num.partitions": str(choice([1, 1, 2])),
        "transaction.state.log.segment.bytes": choice(["400", "104857600"]),
        "offsets.topic.segment.bytes": choice(["400", "104857600"]),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": choice(["500", "2000"]),
    }


def _trouble(theme: "Theme", targets: list[str], rounds: tuple[int, ...]) -> None:
    choice = theme._chance.choice
    for at_ms in theme._moments(rounds):
        kind = choice(["strike", "strike", "crash", "power cut", "restart", "kill", "cut", "slow disk"])
        if kind == "strike":
            theme._fault(at_ms, kind, 3_000, choice([100, 1_000]), "Transaction")
        elif kind == "slow disk":
            theme._fault(at_ms, kind, choice([500, 3_000]), choice([20, 200]))
        else:
            step = choice([0, 1, 5, 20]) if kind in {"crash", "power cut"} else 0
            theme._fault(at_ms, kind, choice([0, 500, 3_000]), step, choice(targets))


def back_to_back(theme: "Theme") -> None:
    """One transaction begins as soon as the end of the one before is answered, whose markers go to many partitions of a slow disk."""
    choice, maybe = theme._chance.choice, theme._maybe
    _settings(theme, choice([3, 6]))
    theme._sync_ms = choice([2.0, 5.0, 20.0])
    theme._delays = {"marker_ms": choice([5.0, 50.0, 200.0])}
    theme._more_topics = [TopicPlan(name="derived", partitions=2)]
    transactors = [
        theme._transactor(
            (10, 20),
            more_topics=["derived"],
            records=10,
            offsets=0.3,
            dies=0.0,
            at_once=True,
            pace_ms=5,
            timeout_ms=20_000,
            linger_ms=0,
        )
        for _ in range(choice([1, 2]))
    ]
    if maybe(0.5):
        flow = {"aborts": 0.1, "timeout_ms": 20_000, "pace_ms": 5, "request_timeout_ms": 5_000}
        transactors.append(theme._client("flow", (10, 20), output="derived", **flow))
    theme._client("auditor", (5, 10))
    theme._client("accountant", (10, 20), group=f"offsets-of-{transactors[0]}")
    _trouble(theme, transactors, (0, 1, 2))


def hasty(theme: "Theme") -> None:
    """Clients of the older version do not wait for their answers: records or offsets come while an end is being written."""
    choice = theme._chance.choice
    _settings(theme, choice([2, 4]))
    theme._sync_ms = choice([2.0, 5.0, 20.0])
    clients = [
        theme._client("hasty", (10, 20), offsets=offsets) for offsets in choice([[True], [False], [True, False]])
    ]
    if theme._maybe(0.3):
        clients.append(theme._transactor((5, 10)))
    _trouble(theme, clients, (0, 1, 2))


def keyed(theme: "Theme") -> None:
    """Keys are set and deleted in a compacted topic, in transactions and outside of them, while it is cleaned."""
    choice, maybe = theme._chance.choice, theme._maybe
    _settings(theme, choice([1, 2]))
    theme._span_ms = 8_000
    theme._configs = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": choice(["0.01", "0.5"]),
        "delete.retention.ms": choice(["0", "0", "2000", "86400000"]),
        "internal.segment.bytes": choice(["300", "600"]),
    }
    theme._broker = {
        **theme._broker,
        "log.retention.check.interval.ms": choice(["200", "1000"]),
    }  # cleaning comes with it
    keys = choice([2, 4])
    clients = [
        theme._transactor((15, 25), keys=keys, dies=0.0, pace_ms=5, timeout_ms=choice([1_000, 20_000]))
        for _ in range(choice([1, 2]))
    ]
    if maybe(0.5):
        clients.append(theme._producer((20, 40), keys=keys))
    if maybe(0.5):
        theme._client("auditor", (10, 20))
    _trouble(theme, clients, (0, 1, 2))


def kept_weakly(theme: "Theme") -> None:
    """The broker's own `durability` is a weaker one: a power cut takes what was not flushed, but nothing of topics that say
    otherwise, and nothing of the broker's own."""
    choice, maybe = theme._chance.choice, theme._maybe
    _settings(theme, choice([1, 2]))
    theme._sync_ms = choice([0.5, 2.0, 5.0])
    theme._broker = {**theme._broker, "log.durability": choice(["os", "os", "interval"])}
    weak = maybe(0.4)
    theme._configs = {} if weak else {"durability": "flush"}
    theme._more_topics = [TopicPlan(name=name, configs=theme._configs) for name in ("derived", "plain")]
    clients = [theme._transactor((10, 20), more_topics=["derived"], dies=0.0) for _ in range(choice([1, 2]))]
    theme._client("auditor", (5, 10))
    theme._topic = "plain"  # where no marker is, behind which members never get
    clients.append(theme._producer((20, 40)))
    if not weak:
        clients += [theme._client("member", (10, 20), strategy="range", session_ms=6_000, auto=False, leaves=False)]
        theme._client("looker", (20, 40))
    theme._topic = "ledger"
    for at_ms in theme._moments((1, 2, 3)):
        kind = choice(["power cut", "power cut", "power cut", "crash", "restart"])
        theme._fault(at_ms, kind, choice([0, 500]), choice([0, 0, 1, 2, 5, 20]) if kind != "restart" else 0)
    if maybe(0.4):
        theme._fault(theme._chance.randint(500, 5_000), "strike", 3_000, 100, choice(["Transaction", "Commit"]))


def of_an_earlier_level(theme: "Theme") -> None:
    """What `in_transactions`, `taken_over` and `passed_on` do, in a directory of `transaction.version` 0 or 1."""
    theme._levels = {"transaction.version": theme._chance.choice([0, 1])}
    theme._chance.choice([type(theme).in_transactions, type(theme).taken_over, type(theme).passed_on, hasty])(theme)


def handed_over(theme: "Theme") -> None:
    """Flows leave their group and join again while others work on records: partitions are assigned to another member meanwhile."""
    choice = theme._chance.choice
    theme._transactional(partitions=choice([2, 3]))
    theme._sync_ms = choice([0.5, 2.0])
    theme._producer((40, 60), burst=5)
    protocol = choice(["classic", "classic", "consumer"])
    flows = [
        theme._client(
            "flow",
            (10, 20),
            output="derived",
            protocol=protocol,
            slow=0.6,
            leaves=choice([0.2, 0.5]),
            aborts=0.1,
            timeout_ms=20_000,
            pace_ms=5,
            request_timeout_ms=5_000,
        )
        for _ in range(choice([2, 3]))
    ]
    for at_ms in theme._moments((0, 1, 2)):
        theme._fault(at_ms, choice(["kill", "freeze", "cut"]), choice([500, 3_000]), target=choice(flows))


THEMES: Final = (back_to_back, hasty, keyed, kept_weakly, of_an_earlier_level)
ABOUT: Final = {
    "ends": (back_to_back, hasty),
    "compaction": (keyed,),
    "durability": (kept_weakly,),
    "levels": (of_an_earlier_level,),
    "handovers": (handed_over,),
}
