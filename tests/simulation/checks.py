"""What a history must look like.

Here: the list of all checks, what an anomaly is, and the rules of a topic.
Not here: the checks themselves (`record_checks`, `group_checks`, `modern_checks`, `topic_checks`, `transaction_checks`,
`share_checks`, `letter_checks`, `service_checks`). All are pure: a history in, anomalies out.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tests.simulation.history import Happening, History, Partition


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that must not be: its name in the list of anomalies, and the story in a line."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """What may become of a topic's records.

    Attributes:
        compacted: older records of a key may go.
        cut: records may go from the beginning on: by retention, or because a client had them deleted.
        retention_bytes: nothing goes by retention as long as what would be left is smaller; None where nothing goes by retention.
        durable: acknowledged means on disk; where not, a power cut may take the end.
        recreated: topics of this name come and go.
    """

    compacted: bool = False
    cut: bool = False
    retention_bytes: int | None = None
    durable: bool = True
    recreated: bool = False

    @property
    def whole(self) -> bool:
        """Whether every record stays."""
        return not (self.compacted or self.cut or self.recreated) and self.durable


PLAIN: Final = TopicRules()
Rules = Mapping[str, TopicRules]
Check = Callable[[History, Rules], Iterator[Anomaly]]


def cut_for_damage(history: History) -> set[Partition]:
    """Partitions whose records were damaged on purpose, and of which a node has said that it serves a part no more.

    What a killed process has not checkpointed may be cut where it is damaged, as it looks like a torn end; but never without a word.
    """
    events = list(history.of(Happening))
    damaged = {event.partition for event in events if event.kind == "damage" and ".log" in event.text}
    warnings = [event.text for event in events if event.kind == "warning"]
    return {partition for partition in damaged if partition and any(str(partition) in text for text in warnings)}


def check(history: History, rules: Rules) -> list[Anomaly]:
    """Everything that is wrong with a history.

    Args:
        rules: of the topics that are not plain, by name.
    """
    from tests.simulation import (
        group_checks,
        letter_checks,
        modern_checks,
        record_checks,
        service_checks,
        share_checks,
        topic_checks,
        transaction_checks,
    )

    if not any(event.kind == "power cut" for event in history.of(Happening)):
        rules = {name: replace(rule, durable=True) for name, rule in rules.items()}  # a killed process loses no page
    cut = {partition.topic for partition in cut_for_damage(history)}
    rules = {**rules, **{name: replace(rules.get(name, PLAIN), durable=False) for name in cut}}
    families = (
        record_checks,
        group_checks,
        modern_checks,
        topic_checks,
        transaction_checks,
        share_checks,
        letter_checks,
        service_checks,
    )
    return [
        anomaly for family in families for check_history in family.CHECKS for anomaly in check_history(history, rules)
    ]
