"""Fair shares of a node's bound between hosts.

Here: the account, the rule, the text of a refusal.
Not here: what is counted, the error code.

A host may use as much as it leaves free, as a port may of a switch's shared buffer (dynamic thresholds, Choudhury and
Hahne 1998). One host alone gets at most half, two get a third each, and a new host finds room however many there are.
Without authentication a peer is its host. Usage read from a log without a known host counts for all together.
"""

from collections.abc import Callable
from typing import Final

NOBODY: Final = ""
"""The host of usage without a known host."""
_MIB: Final = 1024 * 1024


class FairShare:
    """A bound in bytes, and the usage of each host.

    Args:
        what, remedy: what is bounded, and what a refused host may do, in words.
        refused: called with the host and the text of each refusal.

    Attributes:
        used: by all hosts, the unknown one included.
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
        return self._used_by.get(host, 0)

    def change(self, host: str, by: int) -> None:
        self.used += by
        if host != NOBODY:
            left = self._used_by.pop(host, 0) + by
            assert left >= 0, host
            if left:
                self._used_by[host] = left

    def fits(self, host: str, more: int, beside: int = 0) -> bool:
        """Whether a host's share allows `more` bytes, with `beside` by others."""
        free = self._limit - self.used - more - beside
        own = 0 if host == NOBODY else self.of(host) + more
        return more <= 0 or own <= free

    def refusal(self, host: str, more: int, beside: int = 0) -> str | None:
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
        other = FairShare(self._limit, what=self._what, remedy=self._remedy, refused=self._refused)
        other._used_by, other.used = self._used_by.copy(), self.used
        return other


class Account:
    """The usage of one part of the node, by host.

    `give_back` or garbage collection returns it. `held`: by all hosts, the unknown one included.
    """

    __slots__ = ("_by_host", "_share", "held")

    def __init__(self, share: FairShare) -> None:
        self._share = share
        self._by_host: dict[str, int] = {}
        self.held = 0

    def change(self, host: str, by: int) -> None:
        if not by:
            return
        self._share.change(host, by)
        self.held += by
        left = self._by_host.pop(host, 0) + by
        assert left >= 0, host
        if left:
            self._by_host[host] = left

    def replace(self, before: tuple[str, int], now: tuple[str, int]) -> None:
        if before[0] == now[0]:
            self.change(now[0], now[1] - before[1])
        else:
            self.change(before[0], -before[1])
            self.change(*now)

    def refusal(self, host: str, more: int, beside: int = 0) -> str | None:
        return self._share.refusal(host, more, beside)

    def give_back(self) -> None:
        for host, held in self._by_host.items():
            self._share.change(host, -held)
        self._by_host.clear()
        self.held = 0

    def copied(self) -> FairShare:
        """Copy the bound without the usage of this account."""
        share = self._share.copy()
        for host, held in self._by_host.items():
            share.change(host, -held)
        return share

    def __del__(self) -> None:
        self.give_back()
