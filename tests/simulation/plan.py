"""What one simulated run consists of: topics, clients, faults, the delays on network and disk. A seed draws it whole.

Here: the plan as a value, its text form for the cases that are kept.
Not here: its drawing (`drawing`), carrying it out (`scenario`). A plan is explicit so that it can be shrunk: a fault
less is the same plan without that fault.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.checks import TopicRules


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic that is there from the beginning."""

    name: str
    partitions: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)

    def rules(self, durability: str = "flush") -> TopicRules:
        """What may become of its records; `durability` is the broker's, for topics without their own."""
        kept = self.configs.get("retention.bytes")
        return TopicRules(
            compacted=self.configs.get("cleanup.policy") == "compact",
            cut=self.name.startswith("trimmed"),
            retention_bytes=int(kept) if kept is not None else None,
            durable=self.configs.get("durability", durability) == "flush",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlan:
    """A client: what it does how often; options are of its kind."""

    name: str
    kind: str
    operations: int
    topic: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong at a moment; which client or file it hits is `target`."""

    at_ms: int
    kind: str
    for_ms: int = 0
    amount: int = 0
    target: str = ""

    def __str__(self) -> str:
        parts = [f"at {self.at_ms} ms: {self.kind}", self.target]
        parts += [f"for {self.for_ms} ms"] if self.for_ms else []
        parts += [f"({self.amount})"] if self.amount else []
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole run.

    Attributes:
        seed: decides all that is not written down here: delays, the order of what is ready, what survives a power cut.
        span_ms: faults happen, and clients work, within it; after it all must come right.
        broker: settings of the node.
        delays: delays of network and disk in ms, by name.
        epoch_max: the last epoch of a producer, where it is not to be 32,767: so few that they are used up.
        levels: of the features that the node's directory is formatted with, where they are not those of a new cluster.
    """

    seed: int
    span_ms: int
    topics: tuple[TopicPlan, ...]
    clients: tuple[ClientPlan, ...]
    faults: tuple[Fault, ...]
    broker: Mapping[str, str] = field(default_factory=dict)
    delays: Mapping[str, float] = field(default_factory=dict)
    epoch_max: int | None = None
    levels: Mapping[str, int] = field(default_factory=dict)

    @property
    def rules(self) -> dict[str, TopicRules]:
        """Of each topic."""
        durability = self.broker.get("log.durability", "flush")
        return {topic.name: topic.rules(durability) for topic in self.topics}

    @property
    def size(self) -> tuple[int, int, int]:
        """Smaller is a better story: faults, clients, operations."""
        return len(self.faults), len(self.clients), sum(client.operations for client in self.clients)

    def to_json(self) -> str:
        """The text that a case is kept as."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """The plan in a text."""
        decoded = json.loads(text)
        return cls(
            seed=decoded["seed"],
            span_ms=decoded["span_ms"],
            topics=tuple(TopicPlan(**topic) for topic in decoded["topics"]),
            clients=tuple(ClientPlan(**client) for client in decoded["clients"]),
            faults=tuple(Fault(**fault) for fault in decoded["faults"]),
            broker=decoded["broker"],
            delays=decoded["delays"],
            epoch_max=decoded.get("epoch_max"),
            levels=decoded.get("levels", {}),
        )
