"""What a share group may have, as its settings say just now.

What lives here: the values. What does not: whose settings they are (`metadata.group_settings`).
"""

from dataclasses import dataclass

from busway_bus.kernel.limits import SHARE_SPAN_MAX
from busway_bus.metadata.group_settings import GroupSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLimits:
    """One group's.

    Attributes:
        lock_ms: how long a member has a record before it is another's.
        delivery_count: how often a record is delivered.
        in_flight: records of a partition between the first that is not done with and the last that was fetched.
        renew: whether a member may have a record for longer.
        committed: whether records of transactions that are not committed are left out.
        dead_letters: whether what is given up goes to a topic of dead letters.
    """

    lock_ms: int = 30_000
    delivery_count: int = 5
    in_flight: int = 2000
    renew: bool = True
    committed: bool = False
    dead_letters: bool = False

    @property
    def throttled_from(self) -> int:
        """Records that were delivered so often come in ever smaller parts, so that a bad one does not take others along."""
        return max(2, (self.delivery_count + 1) // 2)

    @property
    def span(self) -> int:
        """Records of a partition between the first that is not done with and the last that was fetched, those included that wait only for
        their dead letters."""
        return max(self.in_flight, SHARE_SPAN_MAX)

    @classmethod
    def of(cls, group_id: str, setting: GroupSettings) -> "ShareLimits":
        """Those in force for a group."""
        return cls(
            lock_ms=setting(group_id, "share.record.lock.duration.ms"),
            delivery_count=setting(group_id, "share.delivery.count.limit"),
            in_flight=setting(group_id, "share.partition.max.record.locks"),
            renew=setting(group_id, "share.renew.acknowledge.enable"),
            committed=setting(group_id, "share.isolation.level") == "read_committed",
            dead_letters=bool(setting(group_id, "errors.deadletterqueue.topic.name")),
        )
