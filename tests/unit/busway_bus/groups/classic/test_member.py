"""A member's record, its restoration, its size."""

from dataclasses import replace

from tests.unit.busway_bus.groups.classic.test_join_checks import JOIN

from busway_bus.groups.classic.member import Member, listing, protocols_bytes
from busway_bus.kernel.limits import MEMBER_BYTES

REQUEST = replace(JOIN, instance_id="static", protocols=(("range", b"one"), ("sticky", b"three")))


def test_a_joining_members_session_starts_now() -> None:
    """The rest is the request's."""
    member = Member.joining("m-1", REQUEST, now=500)
    assert (member.deadline_ms, member.session_timeout_ms, member.rebalance_timeout_ms) == (10_500, 10_000, 60_000)
    assert (member.client_id, member.client_host, member.host) == ("client", "/127.0.0.1", "/127.0.0.1")
    assert not member.parked
    assert not member.from_log


def test_metadata_is_that_of_the_chosen_protocol() -> None:
    """It is empty before a protocol is chosen."""
    member = Member.joining("m-1", REQUEST, now=0)
    assert (member.metadata("sticky"), member.metadata("range"), member.metadata(None)) == (b"three", b"one", b"")
    assert listing([member], "range") == (("m-1", "static", b"one"),)


def test_a_record_restores_the_member() -> None:
    """Of the protocols only the chosen one is in the record; the session starts at the replay."""
    record = Member.joining("m-1", REQUEST, now=0).record("sticky", b"assignment")
    restored = Member.restored(record, "sticky", now=7_000)
    assert restored.protocols == (("sticky", b"three"),)
    assert (restored.instance_id, restored.assignment, restored.rebalance_timeout_ms) == (
        "static",
        b"assignment",
        60_000,
    )
    assert restored.deadline_ms == 17_000
    assert restored.from_log
    assert restored.record("sticky", b"assignment") == record


def test_a_record_of_version_0_has_no_rebalance_timeout() -> None:
    """The session timeout takes its place, as in Kafka."""
    record = Member.joining("m-1", REQUEST, now=0).record("range", b"")
    record.rebalance_timeout = -1
    assert Member.restored(record, "range", now=0).rebalance_timeout_ms == 10_000


def test_a_static_successor_keeps_what_users_see() -> None:
    """Client id, host and assignment are the predecessor's; the new host's quota is charged."""
    old = Member.joining("m-1", REQUEST, now=0)
    old.assignment = b"assignment"
    new = Member.joining("m-2", replace(REQUEST, client_id="other", client_host="/10.0.0.1"), now=0)
    succeeded = old.succeeded(new)
    assert (succeeded.member_id, succeeded.client_id, succeeded.client_host) == ("m-2", "client", "/127.0.0.1")
    assert (succeeded.assignment, succeeded.host) == (b"assignment", "/10.0.0.1")


def test_size_counts_everything_that_a_client_chooses() -> None:
    """Ids, protocols and assignment, beside a fixed amount."""
    member = Member.joining("m-1", REQUEST, now=0)
    assert protocols_bytes(REQUEST.protocols) == len("range" + "one" + "sticky" + "three")
    assert member.size_bytes == MEMBER_BYTES + len("m-1" + "static" + "client") + protocols_bytes(REQUEST.protocols)
    member.assignment = bytes(100)
    assert member.size_bytes == MEMBER_BYTES + len("m-1" + "static" + "client") + 19 + 100


def test_a_pending_request_shows_that_the_member_is_alive() -> None:
    """A join or a sync."""
    member = Member.joining("m-1", REQUEST, now=0)
    member.join = "waiter"
    assert member.parked
    member.join, member.sync = None, "waiter"
    assert member.parked
