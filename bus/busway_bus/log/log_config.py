"""Settings of one log, by Kafka's topic config names.

Here: an immutable copy.
Not here: parsing and defaults (`kernel`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from busway_bus.kernel.config_def import ConfigValue


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one log: times in ms, sizes in bytes, Kafka's defaults."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    durability: str = "flush"
    file_delete_delay_ms: int = 60_000
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = 2**63 - 1
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = 2**63 - 1
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_ms: int = 604_800_000

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """Age in ms at which a segment is rolled.

        Only rolled segments are compacted, so max.compaction.lag.ms limits it too.
        """
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms

    @classmethod
    def from_values(cls, values: Mapping[str, ConfigValue]) -> "LogConfig":
        """Build from `BrokerConfig.topic_config`."""
        chosen = {name: values[name.replace("_", ".")] for name in cls.__dataclass_fields__}
        policy = chosen["cleanup_policy"]
        assert isinstance(policy, list)
        chosen["segment_bytes"] = values.get("internal.segment.bytes", chosen["segment_bytes"])
        return cls(**{**chosen, "cleanup_policy": tuple(policy)})  # type: ignore[arg-type]
