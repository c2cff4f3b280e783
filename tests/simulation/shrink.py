"""Making the plan of a failing run small: what can be left out, and it still fails?

Here: in which order a plan is searched (faults, then clients, then topics; then fewer operations, simpler options).
Not here: the search itself (`ddmin`), what a run is (`scenario`): whether a plan still fails is asked of a function
that comes in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from busway.testing.simulation.shrinking import ddmin
from tests.simulation.plan import ClientPlan, Plan

ATTEMPTS_MAX: Final = 400
"""Runs that a shrinking may take: about a minute."""
_SIMPLEST: Final[Mapping[str, Any]] = {
    "linger_ms": 0,
    "batch_size": 16_384,
    "compression_type": "none",
    "delivery_timeout_ms": 120_000,
    "request_timeout_ms": 30_000,
    "burst": 1,
    "filler": 0,
    "together": False,
    "dies": False,
    "near_wrap": False,
    "auto": False,
    "leaves": False,
    "explicit": False,
    "records": 1,
    "more_topics": (),
}


class Shrinking:
    """One search.

    Args:
        fails: runs a plan; whether it shows the same anomaly.
        tell: called with every smaller plan that still fails.
    """

    def __init__(
        self, fails: Callable[[Plan], bool], tell: Callable[[Plan], None], *, attempts: int = ATTEMPTS_MAX
    ) -> None:
        self._fails = fails
        self._tell = tell
        self._left = attempts

    def run(self, plan: Plan) -> Plan:
        """The smallest plan that was found."""
        while True:
            before = plan
            plan = self._fewer(plan, "faults")
            plan = self._fewer(plan, "clients")
            plan = self._fewer(plan, "topics")
            plan = self._less_to_do(plan)
            plan = self._simpler(plan)
            if plan == before or self._left <= 0:
                return plan

    def _try(self, plan: Plan) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        if not self._fails(plan):
            return False
        self._tell(plan)
        return True

    def _fewer(self, plan: Plan, what: str) -> Plan:
        """Leave out faults, clients or topics; a client whose topic is gone goes with it."""

        def with_only(items: Sequence[Any]) -> Plan:
            smaller = replace(plan, **{what: tuple(items)})
            names = {topic.name for topic in smaller.topics} | {""}
            return replace(smaller, clients=tuple(client for client in smaller.clients if client.topic in names))

        return with_only(ddmin(getattr(plan, what), lambda items: self._try(with_only(items))))

    def _less_to_do(self, plan: Plan) -> Plan:
        for number, client in enumerate(plan.clients):
            low, high = 0, client.operations  # fails with `high`, not known below
            while high - low > 1:
                middle = (low + high) // 2
                smaller = _with_client(plan, number, replace(client, operations=middle))
                if self._try(smaller):
                    plan, high = smaller, middle
                else:
                    low = middle
        return plan

    def _simpler(self, plan: Plan) -> Plan:
        for number, client in enumerate(plan.clients):
            for name, value in client.options.items():
                simplest = _SIMPLEST.get(name, value)
                if value == simplest:
                    continue
                now = plan.clients[number]
                smaller = _with_client(plan, number, replace(now, options={**now.options, name: simplest}))
                if self._try(smaller):
                    plan = smaller
        for topic in plan.topics:
            if topic.partitions > 1:
                smaller = replace(
                    plan,
                    topics=tuple(replace(other, partitions=1) if other == topic else other for other in plan.topics),
                )
                if self._try(smaller):
                    plan = smaller
        return plan


def _with_client(plan: Plan, number: int, client: ClientPlan) -> Plan:
    return replace(plan, clients=(*plan.clients[:number], client, *plan.clients[number + 1 :]))
