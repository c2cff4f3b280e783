"""Fence members of groups whose process is gone, by the connection that carried their heartbeats.

What lives here: which connection last carried a request of a dynamic member, and how long after its end the member is fenced. What does
not: taking a member out of its group (`groups`), noticing that a connection is closed (`server.connection`).

Apache Kafka waits for the end of the session, 45 s by default. A process that is killed leaves closed sockets behind, so its members are
fenced when no other connection carries a request of theirs within `group.disconnect.grace.ms`, and not before one and a half heartbeat
intervals have passed since the last heartbeat: a client that lost its connection and lives has sent the next one by then. Members of the
classic protocol do not say their interval. It is the time between two heartbeats on one connection; until there were two, a third of the
session is assumed, the most that clients' documentation advises. Static members keep their session, as their instance ids say that they come
back. A network that drops packets closes no connection; then the session decides.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from busway_bus.kernel.limits import MEMBERS_PER_CONNECTION_MAX

logger = logging.getLogger("busway.groups")
WAITING_HEARTBEAT_MS: Final = 1000
LATE_MS: Final = 100
"""A timer that comes later than this shows that the broker stood still."""
LOOK_MS: Final = 30_000
"""How often it is checked, during a long wait, that the member is still in its group."""
MemberKey = tuple[str, str]
"""Group id and member id."""


class Carrier(Protocol):
    """A connection, as far as it matters here.

    Attributes:
        gone: whether it has ended.
        closed_by_client: whether the client, not the broker, has ended it.
        members: whose requests it carried last.
        when_closed: called once when it has ended, with whether the client, not the broker, has closed it.
    """

    gone: bool
    closed_by_client: bool
    members: set[MemberKey]
    when_closed: Callable[[bool], None] | None


@dataclass(slots=True)
class _Heard:
    """The last request of a member; times in ms.

    Attributes:
        longest_ms: the longest heartbeat interval that the member may have, which counts until its interval is known.
        interval_ms: its heartbeat interval, as measured or as the coordinator asked for; 0 while it is not known.
        id_sent: whether its member id may have reached the client.
        rejoins: whether the member has joined again, and not synced since.
        closed_ms: when its connection was closed.
        until_ms: when it is fenced.
    """

    carrier: Carrier
    longest_ms: int
    id_sent: bool
    rejoins: bool = False
    heartbeat_ms: int | None = None
    interval_ms: int = 0
    closed_ms: int = 0
    until_ms: int = 0
    timer: asyncio.TimerHandle | None = None


class MemberConnections:
    """The connections of all dynamic members of this node's groups.

    Memory: an entry for each member, at most `MEMBERS_PER_CONNECTION_MAX` for one connection. Members beyond that are fenced at the end of
    their sessions, as in Kafka, and a warning says so.

    Args:
        grace_ms: `group.disconnect.grace.ms`; 0 fences no member.
        now: the monotonic clock in ms.
        fence: called with group id, member id and the ms that were waited.
        is_member: whether a member is still in its group.
        call_later: as the event loop's, which is the default.
    """

    def __init__(
        self,
        grace_ms: int,
        now: Callable[[], int],
        fence: Callable[[str, str, int], None],
        is_member: Callable[[MemberKey], bool],
        call_later: Callable[..., asyncio.TimerHandle] | None = None,
    ) -> None:
        self._grace_ms = grace_ms
        self._now = now
        self._fence = fence
        self._is_member = is_member
        self._call_later = call_later
        self._heard: dict[str, dict[str, _Heard]] = {}
        """Group id → member id → its last request."""
        self._full = set[Carrier]()
        """Connections of so many members that further ones are not noted."""
        self._warned = set[Carrier]()
        """Connections that a warning has named."""
        self._waiting = Counter[str]()
        """Group id → members whose connection is closed and that are not fenced yet."""

    def heard(
        self,
        carrier: Carrier,
        key: MemberKey,
        longest_ms: int,
        *,
        heartbeat: bool = False,
        interval_ms: int = 0,
        id_sent: bool = True,
        rejoins: bool | None = False,
    ) -> None:
        """Note that a connection carries requests of a member.

        The caller knows that it is a member, or was handed its id: what a client merely says is not kept. A connection that its client has
        closed since it sent the request counts for a member that no other has carried.

        Args:
            longest_ms: the longest heartbeat interval that the member may have.
            heartbeat: whether this is one of the requests that come at an interval.
            interval_ms: the interval that the coordinator asked for, where it does.
            id_sent: whether the member id may have reached the client; if not, no other connection can carry a request of the member.
            rejoins: whether this is JoinGroup of a member that may hold partitions; None for the answer of a JoinGroup.
        """
        if not self._grace_ms:
            return
        heard = self._entry(key)
        if carrier.gone and (heard is not None or not carrier.closed_by_client):
            return
        now, moved = self._now(), heard is None or heard.carrier is not carrier
        if moved and not self._has_room(carrier):
            self.forget(key)
            return
        if heard is None:
            heard = self._heard.setdefault(key[0], {})[key[1]] = _Heard(carrier, longest_ms, id_sent)
        elif moved:
            heard.carrier.members.discard(key)
            heard.carrier = carrier
        carrier.members.add(key)
        carrier.when_closed = partial(self._closed, carrier)
        self._wait_no_more(key, heard)
        heard.longest_ms, heard.id_sent = longest_ms, id_sent
        heard.rejoins = heard.rejoins if rejoins is None else rejoins
        heard.interval_ms = max(heard.interval_ms, interval_ms)
        if not heartbeat:
            heard.heartbeat_ms = None  # members send no heartbeats while they wait for the end of a rebalance
        else:
            if heard.heartbeat_ms is not None and not moved:  # one that is sent again by a new connection comes early
                heard.interval_ms = max(heard.interval_ms, now - heard.heartbeat_ms)
            heard.heartbeat_ms = now
        if carrier.gone:
            self._wait(key, heard, now)

    def lives(self, carrier: Carrier, key: MemberKey) -> None:
        """Note that a connection carries a commit of a member: it is not fenced while its own connection is closed."""
        heard = self._entry(key)
        if heard is not None and heard.timer is not None:
            self.heard(carrier, key, heard.longest_ms)

    def _entry(self, key: MemberKey) -> _Heard | None:
        return self._heard.get(key[0], {}).get(key[1])

    def _has_room(self, carrier: Carrier) -> bool:
        """Whether a connection may carry another member; those that are members no more are forgotten first."""
        if len(carrier.members) < MEMBERS_PER_CONNECTION_MAX:
            return True
        if carrier in self._full:
            return False
        for key in tuple(carrier.members):
            if not self._is_member(key):
                self.forget(key)
        if len(carrier.members) < MEMBERS_PER_CONNECTION_MAX:
            return True
        self._full.add(carrier)
        if not carrier.gone and carrier not in self._warned:
            self._warned.add(carrier)
            logger.warning(
                "one connection carries the requests of more than %d members of groups: where it is closed, the others are fenced when their "
                "sessions end, and not after group.disconnect.grace.ms; give each consumer a connection of its own",
                MEMBERS_PER_CONNECTION_MAX,
            )
        return False

    def carries(self, key: MemberKey) -> bool:
        """Whether a connection carries requests of a member."""
        return self._entry(key) is not None

    def forget(self, key: MemberKey) -> None:
        """Forget a member that has left."""
        members = self._heard.get(key[0], {})
        heard = members.pop(key[1], None)
        if heard is None:
            return
        if not members:
            del self._heard[key[0]]
        self._wait_no_more(key, heard)
        heard.carrier.members.discard(key)
        self._full.discard(heard.carrier)

    def forget_group(self, group_id: str) -> None:
        """Forget the members of a group that this node coordinates no longer."""
        for member_id in tuple(self._heard.get(group_id, ())):
            self.forget((group_id, member_id))

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

    def _wait(self, key: MemberKey, heard: _Heard, now: int) -> None:
        """Fence a member later, unless another connection carries its requests by then, or the session decides."""
        if heard.rejoins:
            self.forget(key)
            return
        wait_ms = self._grace_ms
        if heard.id_sent:
            last_ms = now if heard.heartbeat_ms is None else heard.heartbeat_ms
            wait_ms = max(wait_ms, last_ms + (heard.interval_ms or heard.longest_ms) * 3 // 2 - now)
        heard.closed_ms, heard.until_ms = now, now + wait_ms
        self._waiting[key[0]] += 1
        self._set_timer(key, heard, now)

    def _set_timer(self, key: MemberKey, heard: _Heard, now: int) -> None:
        wait_ms = min(heard.until_ms - now, LOOK_MS)
        call_later = self._call_later or asyncio.get_running_loop().call_later
        heard.timer = call_later(wait_ms / 1000, self._look, key, heard, now + wait_ms)

    def _closed(self, carrier: Carrier, by_client: bool) -> None:
        """Begin to wait for other connections of its members; those of a connection that the broker ended keep their sessions."""
        carrier.when_closed = None
        self._full.discard(carrier)
        self._warned.discard(carrier)
        if not by_client:
            for key in tuple(carrier.members):
                self.forget(key)
            return
        now = self._now()
        for group_id, member_id in tuple(carrier.members):
            self._wait((group_id, member_id), self._heard[group_id][member_id], now)

    def _look(self, key: MemberKey, heard: _Heard, due_ms: int) -> None:
        """Fence a member whose wait is over; forget one that is out of its group."""
        now = self._now()
        if (late_ms := now - due_ms) > LATE_MS:
            heard.until_ms = max(heard.until_ms, now) + min(late_ms, self._grace_ms)
        if not self._is_member(key):
            self.forget(key)
        elif now < heard.until_ms:
            self._set_timer(key, heard, now)
        else:
            self.forget(key)
            self._fence(*key, now - heard.closed_ms)

    def close(self) -> None:
        """Fence no member any more: the node stops."""
        for group_id, members in self._heard.items():
            for member_id, heard in members.items():
                self._wait_no_more((group_id, member_id), heard)
                heard.carrier.when_closed = None
        self._grace_ms = 0
