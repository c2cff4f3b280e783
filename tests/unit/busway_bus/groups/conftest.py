"""What the tests of groups share: one group on a clock that only moves when asked."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from busway_bus.groups.classic.group import ClassicGroup
from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.records import GroupMetadataValue
from busway_bus.groups.requests import Join, Sync
from busway_bus.kernel.decision import PARKED, Decision
from busway_protocol.assignors.consumer_protocol import encode_subscription
from busway_protocol.assignors.subscription import Subscription

SUBSCRIBED = encode_subscription(Subscription(topics=("t",)))


class Bench:
    """A group, its clock, and every answer it gave: waiters are names, `answers` maps a name to what came for it.

    What a group decides to write is applied at once; `written` has the last of it.
    """

    def __init__(self, group: ClassicGroup) -> None:
        self.group = group
        self.now = 1_000_000
        self.answers: dict[str, Any] = {}
        self.written: GroupMetadataValue | None = None

    def carry_out(self, decision: Decision[Any], waiter: str | None = None) -> Any:
        """Apply a decision, and take what it answers."""
        for key, value in decision.records:
            self.group.apply(key, value, self.now)
            self.written = value
        answers = (
            [*decision.responses, (waiter, decision.reply)]
            if waiter and decision.reply is not PARKED
            else decision.responses
        )
        for parked, answer in answers:
            assert parked not in self.answers, "a request is answered once"
            self.answers[parked] = answer
        return None if decision.reply is PARKED else decision.reply

    def join(self, waiter: str, member_id: str = "", **changes: Any) -> Any:
        """Join; the answer if there is one already."""
        values: dict[str, Any] = {
            "member_id": member_id,
            "instance_id": None,
            "client_id": waiter,
            "client_host": "/127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": (("range", SUBSCRIBED),),
            "needs_known_id": False,
            "can_skip_assignment": True,
            **changes,
        }
        self.carry_out(self.group.join(Join(**values), waiter, self.now), waiter)
        return self.answers.get(waiter)

    def sync(self, waiter: str, member_id: str, assignments: Sequence[tuple[str, bytes]] = (), **changes: Any) -> Any:
        """Sync in the current generation; the answer if there is one already."""
        generation = changes.pop("generation", self.group.generation)
        request = Sync(
            member_id=member_id,
            instance_id=changes.pop("instance_id", None),
            generation=generation,
            assignments=tuple(assignments),
            **changes,
        )
        self.carry_out(self.group.sync(request, waiter, self.now), waiter)
        return self.answers.get(waiter)

    def heartbeat(self, member_id: str) -> Any:
        """A heartbeat in the current generation."""
        return self.group.heartbeat(member_id, None, self.group.generation, self.now)

    def leave(self, member_id: str, instance_id: str | None = None) -> Any:
        """Leave."""
        (code,) = self.carry_out(self.group.leave([(member_id, instance_id)], self.now))
        return code

    def tick(self) -> None:
        """The group's timer fires."""
        self.carry_out(self.group.tick(self.now))

    def tick_to(self, moment: int, alive: Sequence[str] = ()) -> None:
        """Let time pass, every deadline on its time; members in `alive` beat once a second."""
        while self.now < moment:
            self.now = min(moment, self.now + 1_000)
            for member_id in alive:
                if member_id in self.group.members:
                    self.group.heartbeat(member_id, None, self.group.generation, self.now)
            self.tick()

    def pair(self) -> tuple[str, str]:
        """Two members in one generation that await sync: the leader and the follower."""
        self.join("a1")
        first = self.answers["a1"].member_id
        self.join("b1")
        self.join("a2", first)
        second = self.answers["b1"].member_id
        assert self.group.generation == 2
        return first, second


@pytest.fixture
def bench_of() -> Callable[..., Bench]:
    """Makes a bench with the limits given."""

    def make(**limits: int) -> Bench:
        counter = iter(range(1, 1_000_000))
        given = {"initial_rebalance_delay_ms": 0, **limits}
        return Bench(ClassicGroup("g", GroupLimits(**given), lambda prefix: f"{prefix}-{next(counter)}"))

    return make


@pytest.fixture
def bench(bench_of: Callable[..., Bench]) -> Bench:
    """A group whose first rebalance does not wait."""
    return bench_of()
