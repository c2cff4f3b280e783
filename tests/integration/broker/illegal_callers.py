"""Who makes a call of groups or transactions, right ones and wrong ones, in words that mean the same on every broker.

Here: producers, members, topics, and what is compared of an answer.
Not here: the calls (`illegal_transaction_calls`, `illegal_group_calls`).
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

from tests.integration.broker.illegal_world import TOPIC, Identity, Outcome, World, codes_of

LEFT_OUT: Final[Outcome] = ("left out",)
NOBODY: Final = ("nobody", 1)
NO_TOPIC: Final = UUID(int=0)
STRANGE_TOPIC: Final = UUID(int=7)


class Call(Protocol):
    """One step of an example."""

    async def make(self, world: World) -> Outcome:
        """Make it, remember what the broker gave, and tell what is compared."""


def compared(answer: Any, *more: object) -> Outcome:
    """What is compared of an answer."""
    return (*(code.name for code in codes_of(answer)), *map(str, more))


def topic_of(world: World, name: str, *, by_id: bool, written: bool = False) -> dict[str, Any]:
    """How a request names a topic that is there, one that is not, or, by the id of zeros, none.

    Args:
        written: the topic that is there is that of the example's producers.
    """
    there = (world.written_to, world.written_to_id) if written else (TOPIC, world.line.topic_id)
    if not by_id:
        return {"name": there[0] if name == TOPIC else name}
    return {"topic_id": {TOPIC: there[1], "none": NO_TOPIC}.get(name, STRANGE_TOPIC)}


@dataclass(frozen=True)
class Producer:
    """One of three: two instances of one transactional id, and one of another; with its epoch or another one.

    `stranger` has an id that no producer was given.
    """

    slot: int
    shift: int = 0
    stranger: bool = False

    def of(self, world: World) -> Identity:
        """Its id and epoch."""
        producer_id, epoch = world.producers[self.slot]
        return (world.nobody[0] if self.stranger else producer_id, epoch + self.shift)

    def may_begin(self, world: World) -> bool:
        """Whether a transaction that it begins would not time out by itself."""
        return world.name_of(self.slot) not in world.lapsing


@dataclass(frozen=True)
class Member:
    """A member of either protocol by its number, one that has another id by now (`former`), `unknown` or `none`, with its epoch or another
    one; and by which instance id it goes: the one it came with (`right`), no one, its `own`, an `other`'s, a `strange` one or one without a letter (`empty`).
    """

    kind: str
    number: int = 0
    shift: int = 0
    instance: str = "right"

    def of(self, world: World) -> tuple[str, int]:
        """Its id and generation or epoch."""
        if self.kind == "none":
            return "", -1
        known = {"classic": world.classic, "former": world.former, "modern": world.modern}.get(self.kind, [])
        member_id, epoch = known[self.number] if self.number < len(known) else NOBODY
        return member_id, epoch + self.shift

    def instance_of(self, world: World) -> str | None:
        """Its instance id."""
        if self.instance == "right":
            return world.instances.get(self.of(world)[0])
        return instance_named(self.instance, self.number)


def instance_named(name: str, number: int) -> str | None:
    """An instance id by what it is to a member of this number."""
    named = {"own": instance_id(number), "other": instance_id(1 - number), "strange": "instance-strange", "empty": ""}
    return named.get(name)


def instance_id(number: int) -> str:
    """The instance id that members of this number have, of either protocol, where they have one."""
    return f"instance-{number}"
