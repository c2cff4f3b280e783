"""What groups that the coordinator balances need of the node around them.

What lives here: their settings, and the topics that regular expressions match. What does not: any rule about groups (`groups`).
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from busway_bus.groups.modern.requests import ConsumerLimits, GroupSettings, MigrationPolicy
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.patterns import BadPattern, Pattern
from busway_bus.metadata.image import ClusterImage

MATCHED_AT_ONCE: Final = 100
"""Topics that are compared with all regular expressions of a group while all others wait."""


def consumer_limits(config: BrokerConfig, setting: Callable[[str, str], Any]) -> ConsumerLimits:
    """What is set for consumer groups.

    Args:
        setting: see `metadata.group_settings`.
    """

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
    """The topics that each regular expression matches, and the version of the topics in which they were looked for; a step at a time."""
    found: dict[str, set[str]] = {regex: set() for regex in regexes}
    patterns: list[tuple[set[str], Pattern]] = []
    for regex in regexes:
        try:
            patterns.append((found[regex], Pattern(regex)))
        except BadPattern:
            continue  # written by a coordinator that could read it
    for count, name in enumerate(image.topics):
        for names, pattern in patterns:
            if pattern.matches(name):
                names.add(name)
        if count % max(MATCHED_AT_ONCE // max(len(patterns), 1), 1) == 0:
            yield
    return image.topics, {regex: frozenset(names) for regex, names in found.items()}
