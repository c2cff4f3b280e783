"""Features of the cluster with levels (KIP-584, KIP-1022).

Here: one row per supported feature: its levels, a new cluster's, other features that it needs.
Not here: the finalized level (`image`), changing it (`controller.features`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from busway_bus.kernel.config_def import ConfigError

METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
SHARE_VERSION_WITH_DEAD_LETTERS: Final = 2
DEAD_LETTER_CONFIGS: Final = "errors.deadletterqueue."
"""Prefix of the dead-letter settings of groups, topics and brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A supported feature.

    Attributes:
        lowest, highest: levels, both included; level 0 turns the feature off.
        begins: the level of a new cluster; the highest if None.
        needs: level → other feature → its lowest level.
    """

    name: str
    lowest: int = 0
    highest: int
    begins: int | None = None
    needs: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


FEATURES: Final[tuple[Feature, ...]] = (
    # 30 is Kafka 4.3's (4.3-IV0): the format of the metadata log's records.
    Feature(name=METADATA_VERSION, lowest=7, highest=30),
    # 2 is that of KIP-890, where each end of a transaction raises the producer's epoch; 1 has tagged fields in its log.
    Feature(name=TRANSACTION_VERSION, highest=2),
    # 1 has the consumer groups of KIP-848.
    Feature(name=GROUP_VERSION, highest=1),
    # 1 has the eligible leader replicas of KIP-966; their records came with metadata.version 23 (4.0-IV1).
    Feature(name=ELR_VERSION, highest=1, needs={1: {METADATA_VERSION: 23}}),
    # 1 has the share groups of KIP-932 and is the highest of Kafka 4.3; 2 has their dead-letter topics (KIP-1191) and is Kafka 4.4's.
    Feature(name=SHARE_VERSION, highest=SHARE_VERSION_WITH_DEAD_LETTERS, begins=1),
)
"""Supported features. Code that depends on a level reads `ClusterImage.features`."""

SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {
    feature.name: (feature.lowest, feature.highest) for feature in FEATURES
}
"""Lowest and highest level, by feature."""

NOT_SERVED: Final[Mapping[str, str]] = {
    "kraft.version": "Voters that change while they run (KIP-853) are not served: name them in controller.quorum.voters.",
    "streams.version": "Streams groups (KIP-1071) are not served: use group.protocol=classic, the default of Kafka Streams.",
}
"""Reasons by unserved feature of Kafka 4.3.1, of level 0; ApiVersions omits it, as in Kafka."""

KAFKAS: Final = frozenset({*SUPPORTED, *NOT_SERVED})


def has_elr(levels: Mapping[str, int]) -> bool:
    """Whether partitions keep eligible leader replicas (KIP-966)."""
    return levels.get(ELR_VERSION, 0) >= 1


def has_dead_letters(levels: Mapping[str, int]) -> bool:
    return levels.get(SHARE_VERSION, 0) >= SHARE_VERSION_WITH_DEAD_LETTERS


def check_levels(levels: Mapping[str, int], configs: Mapping[str, str | None]) -> None:
    """Refuse settings that need a higher level; a null is no setting.

    Raises:
        ConfigError: names the first, with the remedy.
    """
    if has_dead_letters(levels):
        return
    for name, value in configs.items():
        if value is not None and name.startswith(DEAD_LETTER_CONFIGS):
            level = levels.get(SHARE_VERSION, 0)
            raise ConfigError(
                name,
                f"needs {SHARE_VERSION}={SHARE_VERSION_WITH_DEAD_LETTERS}, and this cluster has {level}: "
                f"kafka-features.sh upgrade --feature {SHARE_VERSION}={SHARE_VERSION_WITH_DEAD_LETTERS}",
            )


def levels_of_new_clusters() -> dict[str, int]:
    levels = {feature.name: feature.highest if feature.begins is None else feature.begins for feature in FEATURES}
    return {name: level for name, level in levels.items() if level}


def lacking(name: str, level: int, levels: Mapping[str, int]) -> tuple[str, int] | None:
    """Find a feature that another one's level needs, with its lowest level.

    At any level but 0, every other feature needs `metadata.version`, as in Kafka.
    """
    rows = {feature.name: feature for feature in FEATURES}
    needs = dict(rows[name].needs.get(level, {})) if name in rows else {}
    if level and name != METADATA_VERSION:
        needs.setdefault(METADATA_VERSION, rows[METADATA_VERSION].lowest)
    for other, least in needs.items():
        if levels.get(other, 0) < least:
            return other, least
    return None
