"""How much of a bound of the node each host may use, so that none of them takes what others need.

What lives here: the account, the rule, and the words of a refusal. What does not: what is counted and when (its owners), or the error
code that a client is told.

A host may use as much as it leaves free, as a port may of the buffer that a switch's ports share (dynamic thresholds, Choudhury and Hahne
1998): one host alone gets at most half, two get a third each, and whoever is new finds room however many there are. Without
authentication a host is what a peer is. What is known from a log alone may be nobody's: it counts for all together.
"""

from collections.abc import Callable
from typing import Final

NOBODY: Final = ""
"""Whose what is, of which no host is known."""
_MIB: Final = 1024 * 1024


class FairShare:
    """A bound in bytes, and what each host uses of it.

    Args:
        limit: of all together.
        what: what is bounded, in words.
        remedy: what a host may do that is refused, in words.
        refused: is told the host and the text of each refusal.

    Attributes:
        used: by all, and by nobody.
    """

    __slots__ = ("_limit", "_refused", "_remedy", "_used_by", "_what", "used")

    def __init__(
        self,
        limit: int,
        *,
        what: str = "this",
        remedy: str = "use less",
        refused: Callable[[str, str], None] = lambda host, text: None,
    ) -> None:
        self._limit = limit
        self._what = what
        self._remedy = remedy
        self._refused = refused
        self._used_by: dict[str, int] = {}
        self.used = 0

    def of(self, host: str) -> int:
        """What a host uses."""
        return self._used_by.get(host, 0)

    def change(self, host: str, by: int) -> None:
        """A host uses more or less."""
        self.used += by
        if host != NOBODY:
            left = self._used_by.pop(host, 0) + by
            assert left >= 0, host
            if left:
                self._used_by[host] = left

    def fits(self, host: str, more: int, beside: int = 0) -> bool:
        """Whether a host may use so many bytes more; nobody may use all that is free.

        Args:
            beside: what others are to use more at the same time.
        """
        free = self._limit - self.used - more - beside
        own = 0 if host == NOBODY else self.of(host) + more
        return more <= 0 or own <= free

    def refusal(self, host: str, more: int, beside: int = 0) -> str | None:
        """What a host is told that may not use so many bytes more, as `fits`; None where it may."""
        if self.fits(host, more, beside):
            return None
        limit, used, own = (f"{part / _MIB:.1f} MiB" for part in (self._limit, self.used, self.of(host)))
        text = (
            f"host {host.lstrip('/') or 'unknown'} has {own} for {self._what}, and {more:,} bytes more are above its share: of {limit}, "
            f"{used} of which are in use, a host gets at most as much as it leaves free. {self._remedy}"
        )
        self._refused(host, text)
        return text

    def copy(self) -> "FairShare":
        """The same account, to try what would fit."""
        other = FairShare(self._limit, what=self._what, remedy=self._remedy, refused=self._refused)
        other._used_by, other.used = self._used_by.copy(), self.used
        return other


class Account:
    """What one part of the node uses of a bound, by host; it gives all of it back when it is let go, however that comes about.

    Attributes:
        held: by all hosts, and by nobody.
    """

    __slots__ = ("_by_host", "_share", "held")

    def __init__(self, share: FairShare) -> None:
        self._share = share
        self._by_host: dict[str, int] = {}
        self.held = 0

    def change(self, host: str, by: int) -> None:
        """A host uses more or less here."""
        if not by:
            return
        self._share.change(host, by)
        self.held += by
        left = self._by_host.pop(host, 0) + by
        assert left >= 0, host
        if left:
            self._by_host[host] = left

    def replace(self, before: tuple[str, int], now: tuple[str, int]) -> None:
        """What one host used of something another one uses from now on, or as much more or less of it."""
        if before[0] == now[0]:
            self.change(now[0], now[1] - before[1])
        else:
            self.change(before[0], -before[1])
            self.change(*now)

    def refusal(self, host: str, more: int, beside: int = 0) -> str | None:
        """See `FairShare.refusal`."""
        return self._share.refusal(host, more, beside)

    def give_back(self) -> None:
        """Nothing is used here any more."""
        for host, held in self._by_host.items():
            self._share.change(host, -held)
        self._by_host.clear()
        self.held = 0

    def copied(self) -> FairShare:
        """The bound as it would be without this."""
        share = self._share.copy()
        for host, held in self._by_host.items():
            share.change(host, -held)
        return share

    def __del__(self) -> None:
        self.give_back()
