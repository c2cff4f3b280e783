"""Static members of consumer groups that leave for a while, and what a group's members may choose together."""

from collections.abc import Sequence

import pytest
from tests.unit.busway_bus.groups.migration_driver import Driver, T
from tests.unit.busway_bus.groups.modern.test_balance import Driver as OfPatterns

from busway_bus.groups.modern.requests import ConsumerLimits
from busway_bus.groups.requests import JoinResult
from busway_protocol.errors import ErrorCode

LEAVES_FOR_A_WHILE = -2
ALL = {T: (0, 1, 2, 3)}


def asked_to_give_up() -> Driver:
    """A group whose static member a has all partitions and has to give up two of them, for b."""
    driver = Driver()
    epoch = driver.consumer_heartbeat("a", instance_id="seat").epoch
    driver.consumer_heartbeat("a", epoch, owned=ALL)
    driver.consumer_heartbeat("b")
    answer = driver.consumer_heartbeat("a", epoch, owned=ALL)
    assert {topic: len(numbers) for topic, numbers in answer.assigned.items()} == {T: 2}
    assert len(driver.group.members["a"].revoking[T]) == 2
    return driver


def test_who_leaves_for_a_while_keeps_its_place_for_its_session() -> None:
    """Also where it was to give partitions up: the time for that counts in the epoch alone in which it was asked."""
    driver = asked_to_give_up()
    driver.consumer_heartbeat("a", LEAVES_FOR_A_WHILE, instance_id="seat", topics=None, rebalance_timeout_ms=-1)
    for _ in range(9):
        driver.time_passes(1_000)
        driver.consumer_heartbeat(
            "b", driver.group.members["b"].epoch, topics=None, rebalance_timeout_ms=-1, owned=None
        )
        assert set(driver.group.members) == {"a", "b"}
    driver.time_passes(1_001)
    assert set(driver.group.members) == {"b"}


@pytest.mark.parametrize("crash", [False, True])
def test_a_start_does_not_put_out_who_has_left_for_a_while(crash: bool) -> None:
    """Nor does the time that others have for giving up."""
    driver = asked_to_give_up()
    driver.consumer_heartbeat("a", LEAVES_FOR_A_WHILE, instance_id="seat", topics=None, rebalance_timeout_ms=-1)
    if crash:
        driver.crash()
    driver.time_passes(7_000)
    assert "a" in driver.group.members


def test_what_who_left_was_to_give_up_is_free() -> None:
    """The others need not wait for its session; what it keeps it has as if from the beginning, so that no commit of its successor is too old."""
    driver = asked_to_give_up()
    driver.consumer_heartbeat("a", LEAVES_FOR_A_WHILE, instance_id="seat", topics=None, rebalance_timeout_ms=-1)
    given = driver.consumer_heartbeat("b", driver.group.members["b"].epoch, owned={})
    assert {topic: len(numbers) for topic, numbers in given.assigned.items()} == {T: 2}
    gone = driver.group.members["a"]
    assert gone.revoking == {}
    assert set(gone.assigned[T].values()) == {0}
    assert not set(gone.assigned[T]) & set(given.assigned[T])


@pytest.mark.parametrize(
    ("votes", "chosen"),
    [
        ((None, None, None), "uniform"),
        (("range", None, None), "range"),
        (("range", "range", "uniform"), "range"),
        (("range", "uniform", "uniform"), "uniform"),
    ],
)
def test_members_vote_for_an_assignor(votes: Sequence[str | None], chosen: str) -> None:
    """Most of those who want one decide; without any the broker's first counts. Its assignment is the one that is in force."""
    driver = OfPatterns(1_000, {"t": 7, "u": 5})
    for number, vote in enumerate(votes):
        driver.now += 10_000
        driver.consumer_heartbeat(f"m{number}", topics=("t", "u"), assignor=vote)
    group = driver.group
    assert group.preferred_assignor(group.members.values()) == chosen
    ranges = all(
        sorted(numbers) == list(range(min(numbers), max(numbers) + 1)) and len(target) == 2
        for target in group.target.values()
        for numbers in target.values()
    )
    assert ranges is (chosen == "range")


def test_regular_expressions_are_resolved_again_when_that_is_long_ago() -> None:
    """Ten minutes, as in Kafka: what a member may see can change without a topic that comes or goes."""
    driver = OfPatterns(100, {"t": 1})
    joined = driver.consumer_heartbeat("m", topics=(), regex="t.*")
    assert joined.unresolved == ("t.*",)
    driver.carry_out(driver.shard.resolve("g", {"t.*": frozenset("t")}, driver.group._topics.version, driver.now))
    resolved_at = driver.now
    for after_ms, asked in ((ConsumerLimits().regex_refresh_ms, ()), (ConsumerLimits().regex_refresh_ms + 1, ("t.*",))):
        driver.now = resolved_at + after_ms
        assert (
            driver.consumer_heartbeat("m", driver.group.members["m"].epoch, topics=(), regex="t.*").unresolved == asked
        )


@pytest.mark.parametrize("member_id", ["", "one"])
def test_a_session_timeout_out_of_bounds_is_what_is_wrong_first(member_id: str) -> None:
    """Whatever kind of group there is."""
    driver = Driver()
    refused = JoinResult(error=ErrorCode.INVALID_SESSION_TIMEOUT, member_id=member_id)
    assert driver.join("x", member_id, session_timeout_ms=1) == refused
    driver.consumer_heartbeat("a")
    assert driver.join("x", member_id, session_timeout_ms=1, protocol_type="other") == refused
    driver.consumer_heartbeat("a", -1)
    assert driver.join("x", member_id, session_timeout_ms=1) == refused
    driver.shard.groups["g"] = driver.shard.new_share_group("g")
    assert driver.join("x", member_id, session_timeout_ms=1) == refused
