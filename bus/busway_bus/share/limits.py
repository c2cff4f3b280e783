"""The limits of a share group, from its current settings.

Here: the values.
Not here: reading the settings (`metadata.group_settings`).
"""

from dataclasses import dataclass

from busway_bus.kernel.limits import SHARE_SPAN_MAX
from busway_bus.metadata.group_settings import GroupSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLimits:
    """The limits of one group.

    Attributes:
        lock_ms: duration of a lock.
        delivery_count: maximum deliveries of a record.
        in_flight: maximum records of a partition between the first unfinished and the last fetched.
        renew: members may renew locks.
        committed: uncommitted records are left out.
        dead_letters: archived records go to a dead-letter topic.
    """

    lock_ms: int = 30_000
    delivery_count: int = 5
    in_flight: int = 2000
    renew: bool = True
    committed: bool = False
    dead_letters: bool = False

    @property
    def throttled_from(self) -> int:
        """The delivery count from which redelivered parts get smaller.

        It spares a bad record's neighbours.
        """
        return max(2, (self.delivery_count + 1) // 2)

    @property
    def span(self) -> int:
        """As `in_flight`, with records that wait only for their dead letters."""
        return max(self.in_flight, SHARE_SPAN_MAX)

    @classmethod
    def of(cls, group_id: str, setting: GroupSettings) -> "ShareLimits":
        return cls(
            lock_ms=setting(group_id, "share.record.lock.duration.ms"),
            delivery_count=setting(group_id, "share.delivery.count.limit"),
            in_flight=setting(group_id, "share.partition.max.record.locks"),
            renew=setting(group_id, "share.renew.acknowledge.enable"),
            committed=setting(group_id, "share.isolation.level") == "read_committed",
            dead_letters=bool(setting(group_id, "errors.deadletterqueue.topic.name")),
        )
