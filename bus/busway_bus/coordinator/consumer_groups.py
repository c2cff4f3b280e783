"""Settings and topic matching for consumer groups (KIP-848).

Here: limits, matches of regular expressions.
Not here: rules (`groups`).
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from busway_bus.groups.modern.requests import ConsumerLimits, GroupSettings, MigrationPolicy
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.patterns import BadPattern, Pattern
from busway_bus.metadata.image import ClusterImage

MATCHED_AT_ONCE: Final = 100
"""Comparisons between two yields."""


def consumer_limits(config: BrokerConfig, setting: Callable[[str, str], Any]) -> ConsumerLimits:
    def of_group(group_id: str) -> GroupSettings:
        return GroupSettings(
            session_timeout_ms=setting(group_id, "consumer.session.timeout.ms"),
            heartbeat_interval_ms=setting(group_id, "consumer.heartbeat.interval.ms"),
            assignment_interval_ms=setting(group_id, "consumer.assignment.interval.ms"),
        )

    return ConsumerLimits(
        max_size=config.get("group.consumer.max.size"),
        assignors=tuple(config.get("group.consumer.assignors")),
        migration=MigrationPolicy(config.get("group.consumer.migration.policy")),
        of_group=of_group,
    )


def matching(
    regexes: Sequence[str], image: ClusterImage
) -> Generator[None, None, tuple[object, dict[str, frozenset[str]]]]:
    matches: dict[str, set[str]] = {regex: set() for regex in regexes}
    patterns: list[tuple[set[str], Pattern]] = []
    for regex in regexes:
        try:
            patterns.append((matches[regex], Pattern(regex)))
        except BadPattern:
            continue  # accepted by a coordinator with another syntax
    for count, name in enumerate(image.topics):
        for names, pattern in patterns:
            if pattern.matches(name):
                names.add(name)
        if count % max(MATCHED_AT_ONCE // max(len(patterns), 1), 1) == 0:
            yield
    return image.topics, {regex: frozenset(names) for regex, names in matches.items()}
