"""Fence members of groups whose process is gone, by the connection that carried their heartbeats.

What lives here: which connection last carried a request of a dynamic member, and how long after its end the member is fenced. What does
not: taking a member out of its group (`groups`), noticing that a connection is closed (`server.connection`).

Apache Kafka waits for the end of the session, 45 s by default. A process that is killed leaves closed sockets behind, so its members are
fenced when no other connection carries a request of theirs within `group.disconnect.grace.ms`, and not before one and a half heartbeat
intervals have passed since the last heartbeat: a client that lost its connection and lives has sent the next one by then. Static members keep their
session, as their instance ids say that they come back. A network that drops packets closes no connection; then the session decides.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from busway_bus.kernel.limits import MEMBERS_PER_CONNECTION_MAX

CLASSIC_HEARTBEAT_MS: Final = 3000
"""Default of heartbeat.interval.ms in every client; the interval of a member until two heartbeats have shown another."""
WAITING_HEARTBEAT_MS: Final = 1000
MemberKey = tuple[str, str]
"""Group id and member id."""


class Carrier(Protocol):
    """A connection, as far as it matters here.

    Attributes:
        gone: whether it has ended.
        members: whose requests it carried last.
        when_closed: called once when it has ended, with whether the client, not the broker, has closed it.
    """

    gone: bool
    members: set[MemberKey]
    when_closed: Callable[[bool], None] | None


@dataclass(slots=True)
class _Heard:
    """The last request of a member; times in ms."""

    carrier: Carrier
    heartbeat_ms: int | None = None
    interval_ms: int = 0
    timer: asyncio.TimerHandle | None = None


class MemberConnections:
    """The connections of all dynamic members of this node's groups.

    Memory: an entry for each member, `MEMBERS_PER_CONNECTION_MAX` for one connection. Members beyond that keep their sessions alone.

    Args:
        grace_ms: `group.disconnect.grace.ms`; 0 fences no member.
        now: the monotonic clock in ms.
        fence: called with group id, member id and the ms that were waited.
        call_later: as the event loop's, which is the default.
    """

    def __init__(
        self,
        grace_ms: int,
        now: Callable[[], int],
        fence: Callable[[str, str, int], None],
        call_later: Callable[..., asyncio.TimerHandle] | None = None,
    ) -> None:
        self._grace_ms = grace_ms
        self._now = now
        self._fence = fence
        self._call_later = call_later
        self._heard: dict[MemberKey, _Heard] = {}
        self._waiting = Counter[str]()
        """Group id → members whose connection is closed and that are not fenced yet."""

    def heard(self, carrier: Carrier, key: MemberKey, *, heartbeat: bool = False, interval_ms: int = 0) -> None:
        """Note that a connection carries requests of a member.

        The caller knows that it is a member, or was handed its id: what a client merely says is not kept.

        Args:
            heartbeat: whether this is one of the requests that come at an interval.
            interval_ms: the interval that the coordinator asked for, where it does.
        """
        if not self._grace_ms or carrier.gone:
            return
        heard = self._heard.get(key)
        if heard is None or heard.carrier is not carrier:
            if len(carrier.members) >= MEMBERS_PER_CONNECTION_MAX:
                self.forget(key)
                return
            carrier.members.add(key)
            carrier.when_closed = partial(self._closed, carrier)
            if heard is None:
                heard = self._heard[key] = _Heard(carrier)
            else:
                heard.carrier.members.discard(key)
                heard.carrier = carrier
        self._wait_no_more(key, heard)
        heard.interval_ms = max(heard.interval_ms, interval_ms)
        if not heartbeat:
            heard.heartbeat_ms = (
                None  # a rebalance is no interval: members send no heartbeats while they wait for its end
            )
            return
        now = self._now()
        if heard.heartbeat_ms is not None:
            heard.interval_ms = max(heard.interval_ms, now - heard.heartbeat_ms)
        heard.heartbeat_ms = now

    def carries(self, key: MemberKey) -> bool:
        """Whether a connection carries requests of a member."""
        return key in self._heard

    def forget(self, key: MemberKey) -> None:
        """Forget a member that has left."""
        heard = self._heard.pop(key, None)
        if heard is not None:
            self._wait_no_more(key, heard)
            heard.carrier.members.discard(key)

    def heartbeat_ms(self, group_id: str, interval_ms: int) -> int:
        """Return the interval to ask members for: at most `WAITING_HEARTBEAT_MS` while a member of the group may be fenced soon.

        The others get its partitions with their next heartbeat after that.
        """
        return min(interval_ms, WAITING_HEARTBEAT_MS) if group_id in self._waiting else interval_ms

    def _wait_no_more(self, key: MemberKey, heard: _Heard) -> None:
        if heard.timer is not None:
            heard.timer.cancel()
            heard.timer = None
            self._waiting[key[0]] -= 1
            if not self._waiting[key[0]]:
                del self._waiting[key[0]]

    def _closed(self, carrier: Carrier, by_client: bool) -> None:
        """Begin to wait for other connections of its members; those of a connection that the broker ended keep their sessions."""
        carrier.when_closed = None
        if not by_client:
            for key in tuple(carrier.members):
                self.forget(key)
            return
        call_later, now = self._call_later or asyncio.get_running_loop().call_later, self._now()
        for key in carrier.members:
            heard = self._heard[key]
            last_ms = now if heard.heartbeat_ms is None else heard.heartbeat_ms
            wait_ms = max(self._grace_ms, last_ms + (heard.interval_ms or CLASSIC_HEARTBEAT_MS) * 3 // 2 - now)
            self._waiting[key[0]] += 1
            heard.timer = call_later(wait_ms / 1000, self._over, key, wait_ms)

    def _over(self, key: MemberKey, waited_ms: int) -> None:
        self.forget(key)
        self._fence(*key, waited_ms)

    def close(self) -> None:
        """Fence no member any more: the node stops."""
        for key, heard in self._heard.items():
            self._wait_no_more(key, heard)
            heard.carrier.when_closed = None
        self._grace_ms = 0
