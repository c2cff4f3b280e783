"""Fencing of group members by the connection of their heartbeats.

Here: the connection of each dynamic member's last request, and when the member is fenced after its end.
Not here: the removal (`fencing`), detection of closed connections (`server.connection`).

Apache Kafka waits for the session timeout, 45 s by default. A killed process leaves closed sockets, so its members are
fenced if no other connection carries their requests within `group.disconnect.grace.ms`, but not before 1.5 heartbeat
intervals since the last heartbeat: a live client has reconnected by then. A connection that was reset (RST) shows no
dead process: Linux ends the sockets of a killed process in the ordinary way (FIN), unless received bytes were not
read. Such a client is alive as a rule, and may be in its longest back-off: `RECONNECT_MS` more are waited. A classic
member's interval is measured between two heartbeats on one connection; until then a third of the session timeout is
assumed, the most that clients' documentation advises. Static members keep their session. Where a network drops packets,
the session timeout applies.
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
RECONNECT_MS: Final = 10_000
"""Longest default back-off between two connections of a client: `reconnect.backoff.max.ms` of librdkafka.

librdkafka doubles 100 ms (-25 to +50 %) from one loss to the next, if they are less than 10 s apart; Java's client 50 ms,
up to 1 s (±20 %).
"""
LATE_MS: Final = 100
"""Delay of a timer that shows that the broker stood still."""
LOOK_MS: Final = 30_000
"""Interval of checks that a waiting member is in its group."""
MemberKey = tuple[str, str]


class Carrier(Protocol):
    """A connection of members.

    Attributes:
        closed_by_client: the client, not the broker, ended it.
        was_reset: its end was a reset.
        members: with their last request on it.
        when_closed: called once with `closed_by_client`.
    """

    gone: bool
    closed_by_client: bool
    was_reset: bool
    members: set[MemberKey]
    when_closed: Callable[[bool], None] | None


@dataclass(slots=True)
class _LastRequest:
    """The last request of a member.

    Attributes:
        longest_ms: its longest possible heartbeat interval.
        interval_ms: measured or requested by the coordinator; 0 while unknown.
        id_sent: its member id may have reached the client.
        rejoins: it has joined, and not synced since.
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

    Args:
        grace_ms: `group.disconnect.grace.ms`; 0 fences no member.
        now: monotonic, in ms.
        fence: called with group id, member id and the ms waited.
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
        self._last_requests: dict[str, dict[str, _LastRequest]] = {}
        """Group id → member id → its last request."""
        self._full = set[Carrier]()
        self._warned = set[Carrier]()
        self._waiting = Counter[str]()

    def request_received(
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

        The caller has verified the member or handed out its id. A closed connection counts only for a member without
        another.

        Args:
            longest_ms: the longest possible heartbeat interval.
            heartbeat: the request is periodic.
            interval_ms: requested by the coordinator, if any.
            id_sent: the member id may have reached the client; if not, it has no other connection.
            rejoins: JoinGroup of a member that may hold partitions; None for JoinGroup's response.
        """
        if not self._grace_ms:
            return
        last_request = self._entry(key)
        if carrier.gone and (last_request is not None or not carrier.closed_by_client):
            return
        now, moved = self._now(), last_request is None or last_request.carrier is not carrier
        if moved and not self._has_room(carrier):
            self.forget(key)
            return
        if last_request is None:
            last_request = self._last_requests.setdefault(key[0], {})[key[1]] = _LastRequest(
                carrier, longest_ms, id_sent
            )
        elif moved:
            last_request.carrier.members.discard(key)
            last_request.carrier = carrier
        carrier.members.add(key)
        carrier.when_closed = partial(self._closed, carrier)
        self._wait_no_more(key, last_request)
        last_request.longest_ms, last_request.id_sent = longest_ms, id_sent
        last_request.rejoins = last_request.rejoins if rejoins is None else rejoins
        last_request.interval_ms = max(last_request.interval_ms, interval_ms)
        if not heartbeat:
            last_request.heartbeat_ms = None  # members send no heartbeats while they wait for the end of a rebalance
        else:
            if (
                last_request.heartbeat_ms is not None and not moved
            ):  # one that is sent again by a new connection comes early
                last_request.interval_ms = max(last_request.interval_ms, now - last_request.heartbeat_ms)
            last_request.heartbeat_ms = now
        if carrier.gone:
            self._wait(key, last_request, now)

    def lives(self, carrier: Carrier, key: MemberKey) -> None:
        """Note a request that names the member and its epoch: it is not fenced for its closed connection."""
        last_request = self._entry(key)
        if last_request is not None and last_request.timer is not None:
            self.request_received(carrier, key, last_request.longest_ms)

    def _entry(self, key: MemberKey) -> _LastRequest | None:
        return self._last_requests.get(key[0], {}).get(key[1])

    def _has_room(self, carrier: Carrier) -> bool:
        """Whether a connection has room; former members are removed first."""
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
        return self._entry(key) is not None

    def forget(self, key: MemberKey) -> None:
        members = self._last_requests.get(key[0], {})
        last_request = members.pop(key[1], None)
        if last_request is None:
            return
        if not members:
            del self._last_requests[key[0]]
        self._wait_no_more(key, last_request)
        last_request.carrier.members.discard(key)
        self._full.discard(last_request.carrier)

    def forget_group(self, group_id: str) -> None:
        for member_id in tuple(self._last_requests.get(group_id, ())):
            self.forget((group_id, member_id))

    def heartbeat_ms(self, group_id: str, interval_ms: int) -> int:
        """Return the heartbeat interval to request from members of a group.

        At most `WAITING_HEARTBEAT_MS` while a member may be fenced soon: others then get its partitions early.
        """
        return min(interval_ms, WAITING_HEARTBEAT_MS) if group_id in self._waiting else interval_ms

    def _wait_no_more(self, key: MemberKey, last_request: _LastRequest) -> None:
        if last_request.timer is not None:
            last_request.timer.cancel()
            last_request.timer = None
            self._waiting[key[0]] -= 1
            if not self._waiting[key[0]]:
                del self._waiting[key[0]]

    def _wait(self, key: MemberKey, last_request: _LastRequest, now: int) -> None:
        if last_request.rejoins:
            self.forget(key)
            return
        wait_ms = self._grace_ms
        if last_request.id_sent:
            wait_ms += RECONNECT_MS if last_request.carrier.was_reset else 0
            last_ms = now if last_request.heartbeat_ms is None else last_request.heartbeat_ms
            wait_ms = max(wait_ms, last_ms + (last_request.interval_ms or last_request.longest_ms) * 3 // 2 - now)
        last_request.closed_ms, last_request.until_ms = now, now + wait_ms
        self._waiting[key[0]] += 1
        self._set_timer(key, last_request, now)

    def _set_timer(self, key: MemberKey, last_request: _LastRequest, now: int) -> None:
        wait_ms = min(last_request.until_ms - now, LOOK_MS)
        call_later = self._call_later or asyncio.get_running_loop().call_later
        last_request.timer = call_later(wait_ms / 1000, self._look, key, last_request, now + wait_ms)

    def _closed(self, carrier: Carrier, by_client: bool) -> None:
        carrier.when_closed = None
        self._full.discard(carrier)
        self._warned.discard(carrier)
        if not by_client:
            for key in tuple(carrier.members):
                self.forget(key)
            return
        now = self._now()
        for group_id, member_id in tuple(carrier.members):
            self._wait((group_id, member_id), self._last_requests[group_id][member_id], now)

    def _look(self, key: MemberKey, last_request: _LastRequest, due_ms: int) -> None:
        now = self._now()
        if (late_ms := now - due_ms) > LATE_MS:
            last_request.until_ms = max(last_request.until_ms, now) + min(late_ms, self._grace_ms)
        if not self._is_member(key):
            self.forget(key)
        elif now < last_request.until_ms:
            self._set_timer(key, last_request, now)
        else:
            self.forget(key)
            self._fence(*key, now - last_request.closed_ms)

    def close(self) -> None:
        for group_id, members in self._last_requests.items():
            for member_id, last_request in members.items():
                self._wait_no_more((group_id, member_id), last_request)
                last_request.carrier.when_closed = None
        self._grace_ms = 0
