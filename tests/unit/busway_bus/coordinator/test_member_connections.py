"""Members whose connection was closed: which are fenced, and when."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from busway_bus.coordinator.member_connections import RECONNECT_MS, MemberConnections, MemberKey
from busway_bus.kernel.limits import MEMBERS_PER_CONNECTION_MAX

KEY = ("orders", "member-1")
LONGEST_MS = 15_000
"""The longest heartbeat interval that a member may have: a third of a session of 45 s."""


@dataclass(eq=False)
class Connection:
    """A connection that the test closes."""

    gone: bool = False
    closed_by_client: bool = False
    was_reset: bool = False
    members: set[MemberKey] = field(default_factory=set)
    when_closed: Callable[[bool], None] | None = None

    def close(self, *, by_client: bool = True, reset: bool = False) -> None:
        """The client closes it, or the broker, or the network resets it."""
        self.closed_by_client, self.was_reset = by_client, reset
        if self.when_closed is not None:
            self.when_closed(by_client)
        self.gone = True


class Clock:
    """The event loop's timers, in ms, moved by the test."""

    def __init__(self) -> None:
        self.now = 0
        self.timers: list[tuple[int, asyncio.TimerHandle]] = []

    def call_later(self, delay_s: float, callback: Callable[..., None], *arguments: object) -> asyncio.TimerHandle:
        """As the loop's."""
        moment = self.now + round(delay_s * 1000)
        timer = asyncio.TimerHandle(moment, callback, arguments, asyncio.get_running_loop())
        self.timers.append((moment, timer))
        return timer

    def move(self, ms: int) -> None:
        """Let time pass: each timer runs at its moment."""
        end = self.now + ms
        while due := [entry for entry in self.timers if entry[0] <= end]:
            self.now = max(self.now, min(moment for moment, _ in due))
            self._run()
        self.now = end

    def stand_still(self, ms: int) -> None:
        """Let time pass in which no timer runs: those that are due run at its end."""
        self.now += ms
        self._run()

    def _run(self) -> None:
        due = [timer for moment, timer in self.timers if moment <= self.now]
        self.timers = [(moment, timer) for moment, timer in self.timers if moment > self.now]
        for timer in due:
            if not timer.cancelled():
                timer._run()


class World:
    """Connections, and the members that were fenced with the ms that were waited."""

    def __init__(self, grace_ms: int = 3000) -> None:
        self.clock = Clock()
        self.fenced: list[tuple[str, str, int]] = []
        self.left: set[MemberKey] = set()
        self.connections = MemberConnections(
            grace_ms,
            lambda: self.clock.now,
            lambda *fencing: self.fenced.append(fencing),
            lambda key: key not in self.left,
            self.clock.call_later,
        )

    def beats(self, connection: Connection, count: int, every_ms: int) -> None:
        """Heartbeats of the member."""
        for _ in range(count):
            self.clock.move(every_ms)
            self.connections.request_received(connection, KEY, LONGEST_MS, heartbeat=True)


async def test_a_member_is_fenced_after_the_grace() -> None:
    """And no sooner."""
    world, connection = World(), Connection()
    world.beats(connection, 3, every_ms=500)
    connection.close()
    world.clock.move(2999)
    assert world.fenced == []
    world.clock.move(1)
    assert world.fenced == [(*KEY, 3000)]


async def test_a_request_on_another_connection_in_time_keeps_the_member() -> None:
    """Until that one is closed, too."""
    world, first, second = World(), Connection(), Connection()
    world.beats(first, 3, every_ms=500)
    first.close()
    world.clock.move(2999)
    world.connections.request_received(second, KEY, LONGEST_MS)
    world.clock.move(100_000)
    assert world.fenced == []
    second.close()
    world.clock.move(3000)
    assert world.fenced == [(*KEY, 3000)]


async def test_the_end_of_an_earlier_connection_is_nothing() -> None:
    """The member has moved on."""
    world, first, second = World(), Connection(), Connection()
    world.beats(first, 2, every_ms=500)
    world.beats(second, 1, every_ms=500)
    first.close()
    world.clock.move(100_000)
    assert world.fenced == []


@pytest.mark.parametrize(
    ("every_ms", "asked_ms", "waited_ms"), [(3000, 0, 4500), (200, 5000, 7500), (200, 0, 3000), (100_000, 0, 150_000)]
)
async def test_a_slow_heartbeat_is_waited_for(every_ms: int, asked_ms: int, waited_ms: int) -> None:
    """One and a half intervals since the last one, as observed or as the coordinator asked for, however long they are."""
    world, connection = World(), Connection()
    world.connections.request_received(connection, KEY, LONGEST_MS, interval_ms=asked_ms)
    world.beats(connection, 3, every_ms=every_ms)
    connection.close()
    world.clock.move(waited_ms - 1)
    assert world.fenced == []
    world.clock.move(1)
    assert world.fenced == [(*KEY, waited_ms)]


async def test_what_has_passed_since_the_last_heartbeat_counts() -> None:
    """A client that lives sends the next one when it is due, whenever its connection was lost."""
    world, connection = World(), Connection()
    world.connections.request_received(connection, KEY, LONGEST_MS, interval_ms=5000)
    world.beats(connection, 3, every_ms=5000)
    world.clock.move(3000)
    connection.close()
    world.clock.move(4499)
    assert world.fenced == []
    world.clock.move(1)
    assert world.fenced == [(*KEY, 4500)]


@pytest.mark.parametrize(("interval_ms", "waited_ms"), [(500, RECONNECT_MS + 3000), (20_000, 30_000)])
async def test_a_reset_shows_no_dead_process(interval_ms: int, waited_ms: int) -> None:
    """Clients come back after their longest back-off; that time is beside the one in which a heartbeat is due."""
    world, connection = World(), Connection()
    world.beats(connection, 3, every_ms=interval_ms)
    connection.close(reset=True)
    world.clock.move(waited_ms - 1)
    assert world.fenced == []
    world.clock.move(1)
    assert world.fenced == [(*KEY, waited_ms)]


async def test_a_member_without_an_id_does_not_come_back_after_a_reset() -> None:
    world, parked = World(), Connection()
    world.connections.request_received(parked, KEY, LONGEST_MS, id_sent=False)
    parked.close(reset=True)
    world.clock.move(3000)
    assert world.fenced == [(*KEY, 3000)]


async def test_the_others_are_asked_for_heartbeats_sooner_while_a_member_may_be_fenced() -> None:
    """Of its group, until it is fenced, or another connection carries its requests."""
    world, first, second = World(), Connection(), Connection()
    asked = [world.connections.heartbeat_ms(KEY[0], 5000)]
    world.beats(first, 3, every_ms=500)
    first.close()
    asked += [world.connections.heartbeat_ms(group, ms) for group, ms in ((KEY[0], 5000), (KEY[0], 200), ("g", 5000))]
    world.connections.request_received(second, KEY, LONGEST_MS)
    asked.append(world.connections.heartbeat_ms(KEY[0], 5000))
    second.close()
    asked.append(world.connections.heartbeat_ms(KEY[0], 5000))
    world.clock.move(100_000)
    asked.append(world.connections.heartbeat_ms(KEY[0], 5000))
    assert asked == [5000, 1000, 200, 5000, 5000, 1000, 5000]


async def test_a_rebalance_is_no_interval() -> None:
    """A member that waited a minute for the others, without heartbeats, is fenced as soon as before."""
    world, connection = World(), Connection()
    world.beats(connection, 2, every_ms=500)
    world.clock.move(60_000)
    world.connections.request_received(connection, KEY, LONGEST_MS)
    world.beats(connection, 2, every_ms=500)
    connection.close()
    world.clock.move(3000)
    assert world.fenced == [(*KEY, 3000)]


async def test_nothing_is_kept_of_connections_that_the_broker_ended() -> None:
    """Their members keep their sessions."""
    world, connection = World(), Connection()
    world.beats(connection, 3, every_ms=500)
    connection.close(by_client=False)
    world.clock.move(100_000)
    assert (world.fenced, world.connections.carries(KEY), connection.members) == ([], False, set())
    assert connection.when_closed is None


@pytest.mark.parametrize("heartbeats", [0, 1])
async def test_an_interval_that_is_not_known_may_be_the_longest(heartbeats: int) -> None:
    """A new member that has not sent two heartbeats yet."""
    world, connection = World(), Connection()
    world.connections.request_received(connection, KEY, LONGEST_MS)
    world.beats(connection, heartbeats, every_ms=200)
    connection.close()
    world.clock.move(LONGEST_MS * 3 // 2 - 1)
    assert world.fenced == []
    world.clock.move(1)
    assert world.fenced == [(*KEY, LONGEST_MS * 3 // 2)]


async def test_a_heartbeat_that_is_sent_again_by_a_new_connection_is_no_interval() -> None:
    """A client whose connection is cut with an answer on its way sends it again at once, and the next one when it is due."""
    world, first, second = World(), Connection(), Connection()
    world.beats(first, 1, every_ms=10_000)
    first.close()
    world.beats(second, 1, every_ms=100)
    second.close()
    world.clock.move(10_000)
    assert world.fenced == []


async def test_a_member_whose_client_does_not_know_its_id_is_fenced_after_the_grace() -> None:
    """No client can come back with it; one that was answered may."""
    world, parked, answered = World(), Connection(), Connection()
    world.connections.request_received(parked, KEY, LONGEST_MS, id_sent=False)
    world.connections.request_received(answered, ("orders", "member-2"), LONGEST_MS, id_sent=False)
    world.connections.request_received(answered, ("orders", "member-2"), LONGEST_MS)
    parked.close()
    answered.close()
    world.clock.move(3000)
    assert world.fenced == [(*KEY, 3000)]


async def test_a_request_that_is_served_after_the_end_of_its_connection_keeps_no_member() -> None:
    """A member that no other connection carries is fenced; one that another carries is not; nor is one whose connection the broker ended."""
    world, gone, ended, other = World(), Connection(), Connection(), Connection()
    gone.close()
    ended.close(by_client=False)
    world.connections.request_received(other, ("orders", "carried"), LONGEST_MS)
    world.connections.request_received(gone, ("orders", "carried"), LONGEST_MS)
    world.connections.request_received(ended, ("orders", "ended"), LONGEST_MS)
    world.connections.request_received(gone, KEY, LONGEST_MS, heartbeat=True, interval_ms=2000)
    world.clock.move(1000)
    world.connections.request_received(gone, KEY, LONGEST_MS, heartbeat=True, interval_ms=2000)
    world.clock.move(100_000)
    assert world.fenced == [(*KEY, 3000)]


async def test_the_members_of_a_group_that_is_coordinated_elsewhere_are_forgotten() -> None:
    """Those that are waited for too; other groups' are not."""
    world, closed, first, second = World(), Connection(), Connection(), Connection()
    world.connections.request_received(closed, KEY, LONGEST_MS)
    world.connections.request_received(first, ("orders", "member-2"), LONGEST_MS)
    world.connections.request_received(second, ("bills", "member-1"), LONGEST_MS)
    closed.close()
    world.connections.forget_group("orders")
    assert (first.members, second.members) == (set(), {("bills", "member-1")})
    assert world.connections.heartbeat_ms("orders", 5000) == 5000
    second.close()
    world.clock.move(100_000)
    assert world.fenced == [("bills", "member-1", LONGEST_MS * 3 // 2)]


async def test_grace_zero_fences_no_member_and_keeps_nothing() -> None:
    """As Apache Kafka."""
    world, connection = World(grace_ms=0), Connection()
    world.beats(connection, 3, every_ms=500)
    assert (connection.members, connection.when_closed) == (set(), None)


async def test_a_member_that_left_is_not_fenced() -> None:
    """Nothing is kept of it."""
    world, connection = World(), Connection()
    world.beats(connection, 3, every_ms=500)
    world.connections.forget(KEY)
    connection.close()
    world.clock.move(100_000)
    assert (world.fenced, connection.members) == ([], set())


async def test_a_connection_carries_so_many_members(caplog: pytest.LogCaptureFixture) -> None:
    """Others keep their sessions, which a warning says once; a node that stops fences none."""
    world, connection = World(), Connection()
    for number in range(MEMBERS_PER_CONNECTION_MAX + 5):
        world.connections.request_received(connection, ("g", f"m{number}"), LONGEST_MS)
    assert len(connection.members) == MEMBERS_PER_CONNECTION_MAX
    for number in range(3):  # members that leave make room, which others take
        world.connections.forget(("g", f"m{number}"))
        world.connections.request_received(connection, ("g", f"new{number}"), LONGEST_MS)
        world.connections.request_received(connection, ("g", "further"), LONGEST_MS)
    (warning,) = caplog.messages
    assert f"more than {MEMBERS_PER_CONNECTION_MAX} members" in warning
    connection.close()
    world.connections.close()
    world.clock.move(100_000)
    assert world.fenced == []


async def test_members_that_are_out_of_their_groups_make_room_on_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    """Sessions have ended there: those that come are noted, and fenced when the connection is closed."""
    world, connection = World(), Connection()
    for number in range(MEMBERS_PER_CONNECTION_MAX):
        world.connections.request_received(connection, ("g", f"m{number}"), LONGEST_MS)
    world.left |= connection.members
    world.connections.request_received(connection, KEY, LONGEST_MS)
    assert (connection.members, caplog.messages) == ({KEY}, [])
    connection.close()
    world.clock.move(100_000)
    assert [key[:2] for key in world.fenced] == [KEY]


async def test_time_in_which_the_broker_stood_still_does_not_count() -> None:
    """Requests on another connection may wait to be read; where none did, the member is fenced after as long a time, the grace at most."""
    world, first, second = World(), Connection(), Connection()
    world.beats(first, 3, every_ms=500)
    world.connections.request_received(second, ("orders", "member-2"), LONGEST_MS, heartbeat=True, interval_ms=500)
    first.close()
    second.close()
    world.clock.move(2000)
    world.clock.stand_still(2000)
    assert world.fenced == []
    world.connections.request_received(Connection(), KEY, LONGEST_MS)
    world.clock.move(999)
    assert world.fenced == []
    world.clock.move(1)
    assert world.fenced == [("orders", "member-2", 5000)]


async def test_a_member_that_joins_again_is_left_to_its_session() -> None:
    """Its client may be silent until its program polls: from JoinGroup, its answer included, until SyncGroup or a heartbeat."""
    world, parked, answered, synced = World(), Connection(), Connection(), Connection()
    for connection, member_id in ((parked, "parked"), (answered, "answered"), (synced, "synced")):
        for _ in range(3):
            world.clock.move(500)
            world.connections.request_received(connection, ("orders", member_id), LONGEST_MS, heartbeat=True)
        world.connections.request_received(connection, ("orders", member_id), LONGEST_MS, rejoins=True)
    world.connections.request_received(answered, ("orders", "answered"), LONGEST_MS, rejoins=None)
    world.connections.request_received(synced, ("orders", "synced"), LONGEST_MS)
    for connection in (parked, answered, synced):
        connection.close()
    world.clock.move(100_000)
    assert world.fenced == [("orders", "synced", 3000)]
    assert [world.connections.carries(("orders", member_id)) for member_id in ("parked", "answered")] == [False, False]


async def test_members_that_are_out_of_their_groups_are_forgotten_during_a_long_wait() -> None:
    """A client that joins with sessions of half an hour, and whose members are put out, takes no memory for as long."""
    world = World()
    for number in range(100):
        connection = Connection()
        world.connections.request_received(connection, ("g", f"m{number}"), 600_000)
        world.left |= connection.members
        connection.close()
    world.clock.move(30_000)
    assert (world.connections._last_requests, world.connections.heartbeat_ms("g", 5000), world.fenced) == ({}, 5000, [])
