"""The memory of a node's group members: ids, subscriptions, assignments.

Here: accounting by group and host.
Not here: refused requests (`classic.join_checks`), the rule for hosts (`kernel.fair_share`). Kafka has no limit: a few
hundred members with 1 MB of metadata each exhaust its coordinator.
"""

from collections.abc import Callable, Mapping

from busway_bus.kernel.fair_share import NOBODY, Account, FairShare
from busway_bus.kernel.limits import GROUP_BYTES_MAX, GROUPS_BYTES_MAX, MEMBER_BYTES, PENDING_OFFSETS_BYTES_MAX

Refused = Callable[[str, str], None]
"""Called with the host and the text of a refusal."""


def _ignore(host: str, text: str) -> None:
    """Do nothing."""


class GroupMemory:
    """The bytes of all groups, and of each.

    Attributes:
        share: memory by host.
    """

    def __init__(
        self, limit: int = GROUPS_BYTES_MAX, group_limit: int = GROUP_BYTES_MAX, refused: Refused = _ignore
    ) -> None:
        self.share = FairShare(
            limit,
            what="members of groups",
            remedy="Members that leave, or that subscribe to less, make room.",
            refused=refused,
        )
        self.group_limit = group_limit

    @property
    def used(self) -> int:
        return self.share.used


def pending_share(limit: int = PENDING_OFFSETS_BYTES_MAX, refused: Refused = _ignore) -> FairShare:
    """Return a host quota for offsets of open transactions."""
    remedy = "Transactions that end make room."
    return FairShare(limit, what="offsets within open transactions", remedy=remedy, refused=refused)


class QuotaUsage(Account):
    __slots__ = ("_memory",)

    def __init__(self, memory: GroupMemory) -> None:
        super().__init__(memory.share)
        self._memory = memory

    def refusal(self, host: str, more: int, beside: int = 0) -> str | None:
        """Return why a host may not use this much more, or None.

        `beside`: additional bytes of other hosts at the same time.
        """
        limit = self._memory.group_limit
        if more > 0 and self.held + more + beside > limit:
            return f"The members of this group hold {self.held:,} bytes, and of one group at most {limit:,}."
        return super().refusal(host, more, beside)

    def fits(self, more: Mapping[str, int]) -> bool:
        total = sum(more.values())
        return all(self.refusal(host, part, total - part) is None for host, part in more.items())

    def without(self) -> GroupMemory:
        """Return a copy without this group, for a trial."""
        other = GroupMemory(group_limit=self._memory.group_limit)
        other.share = self.copied()
        return other


class HandedOut(dict[str, int]):
    """Handed-out member ids with their expiry, counted as memory."""

    def __init__(self, usage: QuotaUsage) -> None:
        super().__init__()
        self._usage = usage
        self._hosts: dict[str, str] = {}

    def hand_out(self, member_id: str, deadline: int, host: str) -> None:
        self.discard(member_id)
        self._usage.change(host, MEMBER_BYTES + len(member_id))
        self._hosts[member_id] = host
        super().__setitem__(member_id, deadline)

    def __setitem__(self, member_id: str, deadline: int) -> None:
        self.hand_out(member_id, deadline, self._hosts.get(member_id, NOBODY))

    def __delitem__(self, member_id: str) -> None:
        super().__delitem__(member_id)
        self._usage.change(self._hosts.pop(member_id), -MEMBER_BYTES - len(member_id))

    def discard(self, member_id: str) -> None:
        if member_id in self:
            del self[member_id]

    def clear(self) -> None:
        for member_id in tuple(self):
            del self[member_id]
