"""The settings of the controller's periodic elections, with Kafka's names, types and defaults.

Here: the keys.
Not here: their use (`nodes.balancing`), unclean.leader.election.enable (`topic_configs`).
"""

from collections.abc import Sequence
from typing import Final

from busway_bus.kernel.config_def import ConfigKey, ConfigType

ELECTION_CONFIGS: Final[Sequence[ConfigKey]] = (
    ConfigKey(
        name="auto.leader.rebalance.enable",
        type=ConfigType.BOOLEAN,
        default=True,
        doc="Whether the controller returns partitions to their preferred replicas.",
    ),
    ConfigKey(
        name="leader.imbalance.check.interval.seconds",
        type=ConfigType.LONG,
        default=300,
        doc="Time in seconds between two elections of preferred replicas.",
        at_least=1,
    ),
    ConfigKey(
        name="unclean.leader.election.interval.ms",
        type=ConfigType.LONG,
        default=300_000,
        doc="Time in ms between two unclean elections of leaderless partitions, where topics allow them.",
        at_least=1,
    ),
)
