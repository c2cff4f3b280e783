"""The features of the cluster that have levels (KIP-584, KIP-1022).

What lives here: one row for each feature that is served: its levels, the one that a new cluster begins with, and what a level needs of other
features. What does not: which level is finalized (`image`), or changing it (`controller.features`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from busway_bus.kernel.config_def import ConfigError

METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
SHARE_VERSION_WITH_DEAD_LETTERS: Final = 2
DEAD_LETTER_CONFIGS: Final = "errors.deadletterqueue."
"""What the names of their settings begin with, of groups, topics and brokers alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A feature that this version of Busway serves.

    Attributes:
        lowest, highest: the levels that it can run at, both included; level 0 is the feature turned off.
        begins: the level of a new cluster; the highest without.
        needs: level → other feature → the least level that it has to have beside.
    """

    name: str
    lowest: int = 0
    highest: int
    begins: int | None = None
    needs: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


FEATURES: Final[tuple[Feature, ...]] = (
    # 30 is Kafka 4.3's (4.3-IV0): what the records of the metadata log follow.
    Feature(name=METADATA_VERSION, lowest=7, highest=30),
    # 2 is that of KIP-890, where each end of a transaction raises the producer's epoch; 1 has tagged fields in its log.
    Feature(name=TRANSACTION_VERSION, highest=2),
    # 1 has the consumer groups of KIP-848.
    Feature(name=GROUP_VERSION, highest=1),
    # 1 has the share groups of KIP-932 and is the highest of Kafka 4.3; 2 has their dead-letter topics (KIP-1191) and is Kafka 4.4's.
    Feature(name=SHARE_VERSION, highest=SHARE_VERSION_WITH_DEAD_LETTERS, begins=1),
)
"""What is served: ApiVersions, the registration of brokers, new clusters and UpdateFeatures read this table, whatever acts by a level reads
`ClusterImage.features`."""

SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {one.name: (one.lowest, one.highest) for one in FEATURES}
"""Lowest and highest level, by feature."""

KAFKAS: Final = frozenset(
    {
        "eligible.leader.replicas.version",
        "group.version",
        "kraft.version",
        "metadata.version",
        "share.version",
        "streams.version",
        "transaction.version",
    }
)
"""All that Apache Kafka 4.3.1 knows: one that is not served is at level 0, and can be set to nothing else."""


def has_dead_letters(levels: Mapping[str, int]) -> bool:
    """Whether share groups have dead-letter topics in a cluster with these finalized levels."""
    return levels.get(SHARE_VERSION, 0) >= SHARE_VERSION_WITH_DEAD_LETTERS


def check_levels(levels: Mapping[str, int], configs: Mapping[str, str | None]) -> None:
    """Refuse settings of topics and groups that the cluster's levels do not have yet; a null value is no setting.

    Raises:
        ConfigError: names the first of them, and what to do.
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
    """What a new cluster begins with, by feature; level 0 is none."""
    levels = {one.name: one.highest if one.begins is None else one.begins for one in FEATURES}
    return {name: level for name, level in levels.items() if level}


def lacking(name: str, level: int, levels: Mapping[str, int]) -> tuple[str, int] | None:
    """What a feature at a level needs and is not among these levels: another feature and its least level; None where nothing is.

    Every feature but `metadata.version` needs that one at all, as in Kafka.
    """
    rows = {one.name: one for one in FEATURES}
    needs = dict(rows[name].needs.get(level, {})) if name in rows else {}
    if level and name != METADATA_VERSION:
        needs.setdefault(METADATA_VERSION, rows[METADATA_VERSION].lowest)
    for other, least in needs.items():
        if levels.get(other, 0) < least:
            return other, least
    return None
