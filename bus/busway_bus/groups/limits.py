"""Limits of groups of all kinds.

Here: the values.
Not here: checks (`classic.join_checks`, `modern`).
"""

from dataclasses import dataclass, field

from busway_bus.groups.committed import OffsetMemory
from busway_bus.groups.memory_quota import GroupMemory, pending_share
from busway_bus.groups.modern.requests import ConsumerLimits
from busway_bus.kernel.fair_share import FairShare


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Kafka's group.* settings, offset.metadata.max.bytes, and memory limits.

    Attributes:
        memory: of members.
        pending: of offsets in open transactions.
        offsets: of committed offsets, and of groups without their members.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    max_offset_metadata_bytes: int = 4_096
    consumer: ConsumerLimits = field(default_factory=ConsumerLimits)
    memory: GroupMemory = field(default_factory=GroupMemory)
    pending: FairShare = field(default_factory=pending_share)
    offsets: OffsetMemory = field(default_factory=OffsetMemory)
