"""Plans about share groups: members that take records and say, or do not say, what became of them.

Here: one function for each theme, and what every group's members have in common.
Not here: the parts of a plan (`themes`).
"""

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.plan import TopicPlan
from tests.simulation.share_workloads import SETTINGS

if TYPE_CHECKING:
    from tests.simulation.themes import Theme

BROKER: Final = SETTINGS
_WITH_LETTERS: Final = 0.4
"""How many groups have dead letters."""


def share_options(chance: random.Random, group: str, *, committed: bool = False, **more: Any) -> dict[str, Any]:
    """What the members of a group are like, and its settings."""
    choice = chance.choice
    settings = {
        "share.record.lock.duration.ms": str(choice([1_000, 2_000, 5_000])),
        "share.delivery.count.limit": str(choice([2, 3, 5])),
        "share.session.timeout.ms": str(choice([3_000, 6_000])),
        "share.heartbeat.interval.ms": str(choice([200, 1_000])),
        "share.assignment.interval.ms": str(choice([0, 0, 500])),
        "share.isolation.level": choice(["read_committed", "read_committed", "read_uncommitted"])
        if committed
        else "read_uncommitted",
    }
    usual = {
        "group": group,
        "settings": settings,
        "implicit": chance.random() < 0.2,
        "acquire_mode": choice(["batch_optimized", "record_limit"]),
        "fetch_max_bytes": choice([300, 100_000]),
        "leaves": chance.random() < 0.3,
        "dies": choice([0.0, 0.0, 0.1]),
        "away_ms": choice([0, 1_000]),
        "works_ms": choice([0, 0, 0, 2_500]),
        "says": {
            "release": choice([0.0, 0.1, 0.4]),
            "reject": choice([0.0, 0.1]),
            "renew": choice([0.0, 0.1]),
            "nothing": choice([0.0, 0.1, 0.3]),
        },
    }
    others = random.Random(f"letters/{usual}")  # drawn apart, so that all else of a plan is as it was
    if others.random() < _WITH_LETTERS:
        usual |= letter_options(others, group, settings)
        usual["says"] = usual["says"] | {"reject": others.choice([0.1, 0.3])}
    return usual | more


def letter_options(chance: random.Random, group: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """What a group with dead letters has more: its settings, its topic, which the broker makes where that has no partition yet."""
    letters = {"errors.deadletterqueue.topic.name": f"dlq.{group}"}
    if chance.random() < 0.5:
        letters["errors.deadletterqueue.copy.record.enable"] = "true"
    return {
        "settings": {**settings, **letters},
        "letter_partitions": chance.choice([0, 1, 1, 2]),
        "letter_configs": chance.choice([{}, {}, {"max.message.bytes": "500"}, {"internal.segment.bytes": "1000"}]),
    }


def _group(
    theme: "Theme", number: int, members: list[int], *, operations: tuple[int, int] = (10, 25), **more: Any
) -> list[str]:
    options = share_options(theme._chance, f"share{number}", **more)
    return [theme._client("sharer", operations, **options) for _ in range(theme._chance.choice(members))]


def _state_log(theme: "Theme") -> None:
    choice = theme._chance.choice
    theme._broker = {
        **BROKER,
        "share.coordinator.snapshot.update.records.per.snapshot": str(choice([0, 2, 500])),
        "share.coordinator.state.topic.segment.bytes": str(choice([400, 4_000, 104_857_600])),
        "offsets.topic.segment.bytes": str(choice([400, 104_857_600])),
    }


def shared(theme: "Theme") -> None:
    """Records are taken, given back and answered while nodes and members die, or stand still until their locks are over."""
    chance, choice = theme._chance, theme._chance.choice
    _state_log(theme)
    theme._sync_ms = choice([0.5, 2.0, 5.0])
    theme._configs = choice([{}, {}, {"internal.segment.bytes": "1000"}])
    theme._producer((15, 40), burst=choice([1, 5]))
    sharers = _group(theme, 0, [1, 2, 3])
    if chance.random() < 0.3:
        sharers += _group(theme, 1, [1, 2])
    if chance.random() < 0.5:
        theme._client("keeper", (10, 25), group="share0", resets=0.0)
    for at_ms in theme._moments((1, 2, 3)):
        kind = choice(
            ["strike", "strike", "crash", "power cut", "restart", "kill", "freeze", "freeze", "cut", "no_responses"]
            if chance.random() < 0.85
            else ["failing sync", "full disk"]
        )
        if kind == "strike":
            theme._fault(
                at_ms, kind, 3_000, choice([100, 1_000]), choice(["ShareRequest", "ShareRequest", "ShareStart"])
            )
        elif kind == "failing sync":
            theme._fault(at_ms, kind, choice([0, 500]), choice([0, 50]))
        elif kind == "full disk":
            theme._fault(at_ms, kind, choice([300, 2_000]), choice([0, 200]))
        else:
            step = choice([0, 1, 2, 5, 20]) if kind in {"crash", "power cut"} else 0
            theme._fault(at_ms, kind, choice([0, 500, 3_000]), step, choice(sharers))


def shared_slowly(theme: "Theme") -> None:
    """Nothing happens to the node: members stand still, say nothing, or too late, and locks go from one to another."""
    choice = theme._chance.choice
    _state_log(theme)
    theme._producer((10, 30), burst=choice([1, 5, 10]))
    says = {"nothing": choice([0.2, 0.5]), "renew": choice([0.0, 0.2]), "release": choice([0.0, 0.2])}
    works_ms = choice([0, 2_000, 4_000])
    quiet = {"implicit": False, "dies": 0.0, "leaves": False}
    sharers = _group(theme, 0, [2, 2, 3], operations=(20, 40), says=says, works_ms=works_ms, **quiet)
    for at_ms in theme._moments((1, 2, 3)):
        theme._fault(at_ms, "freeze", choice([1_500, 3_000, 6_000]), target=choice(sharers))


def shared_transactions(theme: "Theme") -> None:
    """What is written in transactions is shared, by a group that wants committed records only, or by one that does not care."""
    choice = theme._chance.choice
    theme._transactional()
    theme._configs = choice([{}, {"internal.segment.bytes": "1000"}])
    theme._more_topics = [TopicPlan(name="derived", configs=theme._configs)]
    transactional = theme._broker
    _state_log(theme)
    theme._broker = {**transactional, **theme._broker}
    for _ in range(choice([1, 2])):
        theme._transactor((8, 20), more_topics=["derived"])
    sharers = _group(theme, 0, [1, 2], committed=True)
    if theme._chance.random() < 0.3:
        sharers += _group(theme, 1, [1], committed=True)
    for at_ms in theme._moments((0, 1, 2)):
        kind = choice(["strike", "crash", "power cut", "restart", "kill", "freeze", "cut"])
        if kind == "strike":
            theme._fault(at_ms, kind, 3_000, choice([100, 1_000]), choice(["ShareRequest", "Transaction"]))
        else:
            theme._fault(at_ms, kind, choice([0, 500, 3_000]), choice([0, 0, 2, 9]), choice(sharers))


def shared_anew(theme: "Theme") -> None:
    """A group's offsets are altered, forgotten, or go with the group, while a member that the group has put out stands still with records."""
    choice = theme._chance.choice
    _state_log(theme)
    theme._span_ms = 12_000
    theme._producer((15, 30), burst=choice([1, 5]))
    more = {"leaves": True, "away_ms": choice([1_000, 4_000])} if theme._chance.random() < 0.5 else {"leaves": False}
    sharers = _group(theme, 0, [1, 1, 2], operations=(10, 20), dies=0.0, **more)
    theme._client("keeper", (40, 60), group="share0", resets=choice([0.5, 1.0]))
    for at_ms in theme._moments((1, 2)):
        for sharer in sharers:  # for longer than the group waits for them
            theme._fault(at_ms, "freeze", choice([4_500, 8_000]), target=sharer)
    if theme._chance.random() < 0.4:
        theme._fault(theme._chance.randint(1_000, 11_000), choice(["crash", "power cut", "restart"]), choice([0, 500]))


def given_up(theme: "Theme") -> None:
    """A group gives up much of what it is given, while its dead letters are forbidden, cannot be written, or are not on disk yet."""
    chance, choice = theme._chance, theme._chance.choice
    _state_log(theme)
    theme._sync_ms = choice([0.5, 2.0, 5.0])
    theme._partitions = choice([1, 1, 2])
    theme._producer((15, 40), burst=choice([1, 5]), filler=choice([0, 100]))
    usual = share_options(chance, "share0", implicit=False)
    settings = {**usual["settings"], "share.delivery.count.limit": str(choice([2, 2, 3]))}
    usual |= letter_options(chance, "share0", settings)
    usual["says"] = {"reject": choice([0.2, 0.5]), "release": choice([0.0, 0.3]), "nothing": choice([0.0, 0.2])}
    sharers = [theme._client("sharer", (10, 25), **usual) for _ in range(choice([1, 2, 3]))]
    theme._client("keeper", (20, 40), group="share0", resets=choice([0.0, 0.0, 0.1]), refuses=choice([0.0, 0.2]))
    for at_ms in theme._moments((1, 2, 3)):
        kind = choice(
            ["strike", "strike", "crash", "power cut", "restart", "kill", "freeze", "failing sync", "full disk"]
        )
        if kind == "strike":
            target = choice(["ShareRequest", "ShareStart", "ShareLetters"])
            theme._fault(at_ms, kind, 3_000, choice([100, 1_000]), target)
        elif kind == "failing sync":
            theme._fault(at_ms, kind, choice([0, 500]), choice([0, 50]))
        elif kind == "full disk":
            theme._fault(at_ms, kind, choice([300, 2_000]), choice([0, 200]))
        else:
            step = choice([0, 1, 2, 5, 20]) if kind in {"crash", "power cut"} else 0
            theme._fault(at_ms, kind, choice([0, 500, 3_000]), step, choice(sharers))


def shared_in_turns(theme: "Theme") -> None:
    """Members come and go all the time, where a broker allows hardly more sessions than there are members."""
    chance, choice = theme._chance, theme._chance.choice
    _state_log(theme)
    theme._span_ms = 20_000
    theme._broker = {**theme._broker, "group.share.max.size": "8", "group.share.max.share.sessions": "8"}
    theme._producer((20, 40), burst=choice([1, 5]))
    usual = share_options(chance, "share0", dies=choice([0.3, 0.5]), away_ms=choice([0, 300]), works_ms=0)
    usual["settings"] = {
        **usual["settings"],
        "share.session.timeout.ms": choice(["1000", "2000"]),
        "share.heartbeat.interval.ms": "200",
    }
    sharers = [theme._client("sharer", (30, 60), **usual) for _ in range(choice([1, 2]))]
    for at_ms in theme._moments((1, 2, 3)):
        kind = choice(["kill", "kill", "freeze", "crash", "restart"])
        theme._fault(at_ms, kind, choice([0, 500, 3_000]), target=choice(sharers))
