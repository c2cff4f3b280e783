"""Plans about groups that their coordinator balances, and about services that are exactly once.

Here: these themes.
Not here: all others, and what a theme is made of (`themes`). They are drawn apart from the others, so that the plan of
a seed that is not about them stays as it was.
"""

import random
from typing import TYPE_CHECKING, Final

from tests.simulation.plan import TopicPlan

if TYPE_CHECKING:
    from tests.simulation.themes import Theme

BALANCED: Final = "balanced"
"""The group of members that speak the newer protocol."""
_BROKER: Final = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.min.session.timeout.ms": "6000",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


def _modern(theme: "Theme", count: int, **options: object) -> list[str]:
    """Members of the balanced group; some are static, some have a favourite assignor."""
    maybe, choice = theme._maybe, theme._chance.choice
    members = []
    for _ in range(count):
        more: dict[str, object] = {"group": BALANCED, "protocol": "consumer", "auto": maybe(0.2)}
        more |= {"strategy": choice([None, None, "range", "uniform"]), "leaves": maybe(0.4)}
        more |= {"lingers": maybe(0.3), **options}
        if maybe(0.3):
            more["instance"] = f"seat{len(theme._clients)}"
        members.append(theme._client("member", (8, 15), **more))
    return members


def _settings(theme: "Theme") -> None:
    choice = theme._chance.choice
    theme._broker = {
        **_BROKER,
        "group.consumer.assignment.interval.ms": choice(["0", "0", "1000"]),
        "offsets.topic.segment.bytes": choice(["400", "4000", "104857600"]),
    }


def _trouble(theme: "Theme", targets: list[str], strikes: list[str]) -> None:
    """Members and the node are hit, one after the other."""
    choice = theme._chance.choice
    for at_ms in theme._moments((1, 2, 3)):
        kind = choice(
            ["kill", "kill", "freeze", "freeze", "cut", "no_responses", "strike", "crash", "power cut", "restart"]
        )
        if kind == "strike":
            theme._fault(at_ms, kind, 3_000, choice([100, 1_000]), choice(strikes))
        elif kind in {"crash", "power cut"}:
            theme._fault(at_ms, kind, choice([0, 500, 4_000]), choice([0, 0, 1, 2, 5, 20]))
        else:
            theme._fault(at_ms, kind, choice([300, 1_500, 8_000, 9_000]), target=choice(targets))
    if theme._maybe(0.2):
        for_ms, amount = choice([(500, 200), (3_000, 1_000)])
        theme._fault(theme._chance.randint(500, theme._span_ms), choice(["slow disk", "full disk"]), for_ms, amount)
    if theme._maybe(0.1):
        theme._fault(theme._chance.randint(500, theme._span_ms), "failing sync", choice([0, 500]), choice([0, 50]))
    if theme._maybe(0.1):
        theme._fault(
            theme._chance.randint(500, theme._span_ms), "clock jump", amount=choice([3_600_000, -3_600_000, 20_000])
        )


def balanced(theme: "Theme") -> None:
    """Members come, go, stand still and are killed, beside a group of the classic protocol that reads the same."""
    choice = theme._chance.choice
    _settings(theme)
    theme._partitions = choice([1, 2, 3, 4])
    theme._producer((20, 40), burst=5)
    members = _modern(theme, choice([2, 2, 3]))
    if theme._maybe(0.3):
        for _ in range(choice([1, 2])):
            members.append(
                theme._client(
                    "member", (8, 15), strategy="cooperative-sticky", session_ms=6_000, leaves=theme._maybe(0.5)
                )
            )
    if theme._maybe(0.5):
        theme._client("looker", (20, 40), group=BALANCED)
    _trouble(theme, members, ["Commit", "Committed", "ConsumerHeartbeat", "ConsumerHeartbeat"])


def growing(theme: "Theme") -> None:
    """Topics are made and get more partitions while members read them, some by a regular expression."""
    choice = theme._chance.choice
    _settings(theme)
    theme._topic = "growing"
    theme._producer((20, 40), burst=5)
    members = [member for _ in range(choice([1, 2, 3])) for member in _modern(theme, 1, pattern=theme._maybe(0.6))]
    theme._client("grower", (1, 4))
    _trouble(theme, members, ["Commit", "Committed", "ConsumerHeartbeat", "ConsumerHeartbeat"])


def _timeouts(options: dict[str, object]) -> dict[str, object]:
    """Transactions may be so short that some are aborted by their coordinator, which fences their producer."""
    others = random.Random(f"timeouts/{options}")  # drawn apart, so that all else of a plan is as it was
    if others.random() < 0.5:
        return {}
    return {"timeout_ms": others.choice([500, 1_000]), "stalls": others.choice([0.0, 0.1, 0.4])}


def served(theme: "Theme") -> None:
    """A service reads, keeps a table, writes and puts aside, exactly once, in either protocol; what it reads is partly in transactions."""
    choice, maybe = theme._chance.choice, theme._maybe
    _settings(theme)
    theme._topic, theme._partitions = "ledger", choice([1, 2, 3])
    theme._more_topics = [TopicPlan(name="derived", configs={})]
    theme._sync_ms = choice([0.5, 1.0, 5.0])
    in_transactions = maybe(0.5)
    if in_transactions:
        theme._transactor((6, 12), more_topics=["derived"])
    theme._producer((15, 30), burst=choice([1, 5]))
    options: dict[str, object] = {"pace_ms": choice([5, 50, 300]), "request_timeout_ms": choice([1_000, 5_000])}
    options["commit_s"] = choice([0.05, 0.2, 1.0])
    if maybe(0.3):
        options["concurrency"] = choice([2, 5])
    options |= _timeouts(options)
    protocol = choice(["classic", "consumer"])
    instances = [
        theme._client(
            "service",
            (1, 1),
            protocol=protocol,
            leaves=choice([0, 0, 1]),
            **options,
            **({"instance": f"seat{number}"} if maybe(0.2) else {}),
        )
        for number in range(choice([1, 2, 2, 3]))
    ]
    if not in_transactions and maybe(0.3):  # members commit what they are given, and never get behind the last marker
        _modern(theme, 1)
    _trouble(theme, instances, ["Commit", "Send", "Transaction", "Poll"])


def vacated(theme: "Theme") -> None:
    """A static member leaves for a while as soon as it has to give partitions up, which its group goes on without."""
    choice, uniform = theme._chance.choice, theme._chance.uniform
    _settings(theme)
    theme._broker = {**theme._broker, "group.consumer.assignment.interval.ms": "0"}
    theme._partitions, theme._span_ms = choice([2, 3, 4]), 12_000
    theme._producer((20, 40), burst=5)
    theme._client(
        "member",
        (20, 30),
        group=BALANCED,
        protocol="consumer",
        auto=theme._maybe(0.2),
        instance="seat",
        vacates=True,
        away_s=uniform(3.5, 5.5),
    )
    _modern(theme, 1, begins_s=uniform(1.5, 3.0), leaves=False, lingers=False)


def migrating(theme: "Theme") -> None:
    """Members go over to the other protocol one after the other, some of them back, and some not at all."""
    choice, maybe = theme._chance.choice, theme._maybe
    _settings(theme)
    theme._partitions = choice([1, 2, 3, 4])
    theme._producer((20, 40), burst=5)
    classic, consumer = "classic", "consumer"
    strategy = choice(["cooperative-sticky", "cooperative-sticky", "range"])
    members = []
    for number in range(choice([2, 2, 3])):
        options: dict[str, object] = {
            "protocols": choice(
                [[classic, consumer], [classic, consumer], [classic], [classic, consumer, classic], [consumer, classic]]
            ),
            "classic": strategy,
            "session_ms": 6_000,
            "auto": maybe(0.2),
            "strategy": choice([None, None, "range", "uniform"]),
            "lingers": maybe(0.3),
        }
        if maybe(0.4):
            options["instance"] = f"seat{number}"
        members.append(theme._client("member", (10, 20), group=BALANCED, **options))
    if maybe(0.5):
        theme._client("looker", (20, 40), group=BALANCED)
    if maybe(0.7):
        _trouble(theme, members, ["Commit", "Committed", "ConsumerHeartbeat"])


THEMES: Final = (balanced, growing, served)
MORE: Final = (vacated, migrating)
"""Drawn apart from `THEMES`, for the same reason."""
ABOUT: Final = {
    "groups": (balanced, growing),
    "services": (served,),
    "seats": (vacated,),
    "migration": (migrating,),
}
