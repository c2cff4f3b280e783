"""Checks of answers to administrators: topics, their partitions and their settings.

Here: a topic as a thing that is created, changed, looked at and deleted, each taking effect at one moment.
Not here: records.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tests.simulation.checks import Anomaly, Check, Rules
from tests.simulation.group_checks import NEVER, deadline
from tests.simulation.history import Deed, History, Outcome, TopicDeed
from tests.simulation.linearizable import IMPOSSIBLE, Step, Undecided, unexplained


class Topic(NamedTuple):
    """A topic that is there."""

    partitions: int
    setting: str | None


def topics(history: History, _: Rules) -> Iterator[Anomaly]:
    """What was acknowledged of a topic holds until an acknowledged or possible change of it."""
    steps: dict[str, list[Step]] = defaultdict(list)
    for deed in history.of(TopicDeed):
        if deed.outcome is Outcome.FAIL and deed.exists is None:
            continue  # refused, without a description
        if deed.deed is Deed.LOOK and not deed.ok:
            continue
        certain = deed.outcome is not Outcome.INFO
        returned = deed.returned if certain else deadline(history, deed)
        steps[deed.topic].append(
            Step(
                invoked=deed.invoked,
                returned=returned or NEVER,
                certain=certain,
                apply=_effect(deed),
                text=f"{deed.process} was told: {deed.describe()}",
            )
        )
    for name, topic_steps in steps.items():
        try:
            blocked = unexplained(topic_steps, None)
        except Undecided:
            continue
        if blocked is not None:
            yield Anomaly("topic", f"{name}: nothing explains that {blocked.text}")


def _effect(deed: TopicDeed) -> Any:
    """The state after a deed. A client asks again when it gets no answer, so "exists already" may be of its own making."""
    made = Topic(deed.partitions or 1, deed.setting)

    def create(state: Topic | None) -> Any:
        if deed.ok:
            return made if state is None else IMPOSSIBLE
        return state or made

    def delete(state: Topic | None) -> Any:
        return IMPOSSIBLE if deed.ok and state is None else None

    def grow(state: Topic | None) -> Any:
        if deed.outcome is Outcome.FAIL:
            return state if (state is not None) == deed.exists else IMPOSSIBLE
        return IMPOSSIBLE if state is None else state._replace(partitions=deed.partitions or 1)

    def configure(state: Topic | None) -> Any:
        if deed.outcome is Outcome.FAIL:
            return state if (state is not None) == deed.exists else IMPOSSIBLE
        return IMPOSSIBLE if state is None else state._replace(setting=deed.setting)

    def look(state: Topic | None) -> Any:
        if state is None or not deed.exists:
            return state if (state is not None) == deed.exists else IMPOSSIBLE
        fits = deed.partitions in {None, state.partitions} and deed.setting in {None, state.setting}
        return state if fits else IMPOSSIBLE

    return {
        Deed.CREATE: create,
        Deed.DELETE: delete,
        Deed.GROW: grow,
        Deed.CONFIGURE: configure,
        Deed.LOOK: look,
    }[deed.deed]


CHECKS: Final[tuple[Check, ...]] = (topics,)
