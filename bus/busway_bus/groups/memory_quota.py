"""What the members of all groups of a node hold: their ids, subscriptions and assignments, which are theirs to choose.

What lives here: the count, by group and by host. What does not: which request has to be refused for it (`classic.join_checks`), and the rule for
hosts (`kernel.fair_share`). Kafka has no such bound; there a few hundred members with a megabyte of metadata each take the coordinator's
memory.
"""

from collections.abc import Callable, Mapping

from busway_bus.kernel.fair_share import NOBODY, Account, FairShare
from busway_bus.kernel.limits import GROUP_BYTES_MAX, GROUPS_BYTES_MAX, MEMBER_BYTES, PENDING_OFFSETS_BYTES_MAX

Refused = Callable[[str, str], None]
"""Is told the host and the text of a refusal."""


def _untold(host: str, text: str) -> None:
    """Nobody is told."""


class GroupMemory:
    """Bytes held by all groups together, at most `limit`, and by each, at most `group_limit`.

    Args:
        refused: is told of each refusal for what a host holds.

    Attributes:
        share: what each host holds.
    """

    def __init__(
        self, limit: int = GROUPS_BYTES_MAX, group_limit: int = GROUP_BYTES_MAX, refused: Refused = _untold
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
        """What is held."""
        return self.share.used


def pending_share(limit: int = PENDING_OFFSETS_BYTES_MAX, refused: Refused = _untold) -> FairShare:
    """What each host may have of offsets that were committed within transactions which are open."""
    remedy = "Transactions that end make room."
    return FairShare(limit, what="offsets within open transactions", remedy=remedy, refused=refused)


class Holding(Account):
    """What one group holds."""

    __slots__ = ("_memory",)

    def __init__(self, memory: GroupMemory) -> None:
        super().__init__(memory.share)
        self._memory = memory

    def refusal(self, host: str, more: int, beside: int = 0) -> str | None:
        """Why a host's members may not hold so much more; None where they may.

        Args:
            beside: what members of other hosts are to hold more at the same time.
        """
        limit = self._memory.group_limit
        if more > 0 and self.held + more + beside > limit:
            return f"The members of this group hold {self.held:,} bytes, and of one group at most {limit:,}."
        return super().refusal(host, more, beside)

    def fits(self, more: Mapping[str, int]) -> bool:
        """Whether the members of these hosts may hold so much more, all of them together."""
        total = sum(more.values())
        return all(self.refusal(host, part, total - part) is None for host, part in more.items())

    def without(self) -> GroupMemory:
        """The memory as it would be without this, to try what would fit then."""
        other = GroupMemory(group_limit=self._memory.group_limit)
        other.share = self.copied()
        return other


class HandedOut(dict[str, int]):
    """Member ids that were handed out and are waited for, each with the moment in which it lapses; counted while they are here."""

    def __init__(self, holding: Holding) -> None:
        super().__init__()
        self._holding = holding
        self._hosts: dict[str, str] = {}

    def hand_out(self, member_id: str, deadline: int, host: str) -> None:
        """Wait for a member of this host."""
        self.discard(member_id)
        self._holding.change(host, MEMBER_BYTES + len(member_id))
        self._hosts[member_id] = host
        super().__setitem__(member_id, deadline)

    def __setitem__(self, member_id: str, deadline: int) -> None:
        self.hand_out(member_id, deadline, self._hosts.get(member_id, NOBODY))

    def __delitem__(self, member_id: str) -> None:
        super().__delitem__(member_id)
        self._holding.change(self._hosts.pop(member_id), -MEMBER_BYTES - len(member_id))

    def discard(self, member_id: str) -> None:
        """Wait for it no longer."""
        if member_id in self:
            del self[member_id]

    def clear(self) -> None:
        """Wait for none."""
        for member_id in tuple(self):
            del self[member_id]
