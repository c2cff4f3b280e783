"""Groups that change between the classic and the consumer protocol: what is refused, what is kept, and what a crash leaves.

Which answers members get is checked beside Apache Kafka (`tests/integration/broker/test_migration_beside_kafka.py`).
"""

import pytest
from tests.unit.busway_bus.groups.migration_driver import Driver, T

from busway_bus.groups.classic.group import ClassicGroup
from busway_bus.groups.classic.states import State
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.mixed import MixedGroup
from busway_bus.groups.modern.requests import MigrationPolicy
from busway_bus.groups.requests import JoinResult
from busway_bus.kernel.limits import MIGRATED_MEMBERS_MAX, SUBSCRIBED_ELEMENTS_MAX
from busway_protocol.assignors.consumer_protocol import decode_assignment, encode_assignment, encode_subscription
from busway_protocol.assignors.subscription import Subscription
from busway_protocol.compile import REQUEST_ELEMENTS_MAX
from busway_protocol.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_no_upgrade_by_policy(policy: MigrationPolicy) -> None:
    """The group stays as it is, and says why."""
    driver = Driver(policy)
    joined = driver.settled()
    with pytest.raises(KafkaError, match="online upgrade is disabled") as refused:
        driver.consumer_heartbeat("m")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.heartbeat(joined) is ErrorCode.NONE


def test_a_group_that_is_too_large_to_change_at_once_stays() -> None:
    """What is written together is bounded."""
    driver = Driver()
    driver.settled()
    for number in range(MIGRATED_MEMBERS_MAX):
        driver.join(f"w{number}")
    with pytest.raises(KafkaError, match="maximum size"):
        driver.consumer_heartbeat("m")


@pytest.mark.parametrize("policy", [MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE])
def test_the_policy_says_whether_it_goes_back(policy: MigrationPolicy) -> None:
    """Without leave to, the group stays a consumer group of classic members, which share what is free."""
    driver = Driver(policy)
    driver.settled()
    epoch = driver.consumer_heartbeat("m").epoch
    driver.consumer_heartbeat("m", -1)
    assert epoch == 2
    assert isinstance(driver.group, ClassicGroup if policy.downgrades else MixedGroup)


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE, MigrationPolicy.DOWNGRADE])
def test_classic_members_may_join_but_where_all_is_disabled(policy: MigrationPolicy) -> None:
    """Either way is enough."""
    for allowed, error in ((policy, ErrorCode.NONE), (MigrationPolicy.DISABLED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)):
        driver = Driver(allowed)
        driver.consumer_heartbeat("m")
        assert driver.join("a").error is error


def test_the_change_is_one_batch_and_leaves_the_offsets() -> None:
    """So no crash leaves half of a group; each end of the log before and after is a whole group."""
    driver = Driver()
    driver.settled()
    before = len(driver.batches)
    driver.consumer_heartbeat("m")
    assert len(driver.batches) == before + 1
    driver.consumer_heartbeat("m", -1)
    assert len(driver.batches) == before + 2
    kinds = [type(driver.loaded(GroupMemory(), count).groups["g"]) for count in range(before, before + 3)]
    assert kinds == [ClassicGroup, MixedGroup, ClassicGroup]


def test_a_crash_after_the_way_back_leaves_nobody_without_partitions() -> None:
    """Who reads the log lets the members join again, as the coordinator does that wrote it: one has gone, and what it had has no owner."""
    driver = Driver()
    joined = driver.settled()
    driver.consumer_heartbeat("m")
    again = driver.join("a", joined.member_id, (0, 1))
    assert again.generation == 2
    driver.consumer_heartbeat("m", -1)
    for _ in range(2):
        assert driver.group.state is State.PREPARING
        assert driver.heartbeat(again) is ErrorCode.REBALANCE_IN_PROGRESS
        driver.crash()
    last = driver.join("a", joined.member_id)
    assert last.leader == joined.member_id
    driver.sync("end", last, **{last.member_id.replace("-", "_"): encode_assignment([("t", 3)])})
    driver.crash()
    assert driver.group.state is State.STABLE
    assert decode_assignment(driver.group.members[last.member_id].assignment) == [("t", 3)]


def test_a_group_that_has_had_no_generation_yet() -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR there; here who waits for the first one has to join again."""
    driver = Driver(initial_rebalance_delay_ms=3_000)
    assert driver.join("a") is None
    assert driver.consumer_heartbeat("m").epoch == 2
    assert driver.answers["a"].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join("a", driver.answers["a"].member_id).generation == 2


def test_who_waits_is_told_to_join_again() -> None:
    """Among members that go on in their generation until they do."""
    driver = Driver()
    first = driver.settled()
    assert driver.join("b") is None
    driver.consumer_heartbeat("m")
    assert driver.answers["b"].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert not driver.join("b", driver.answers["b"].member_id).error


def test_a_classic_member_that_does_not_join_or_sync_in_time_is_out() -> None:
    """By its rebalance timeout, though it is alive."""
    for syncs in (False, True):
        driver = Driver()
        joined = driver.settled()
        epoch = driver.consumer_heartbeat("m").epoch
        if syncs:
            driver.join("a", joined.member_id)
        else:
            assert driver.heartbeat(joined) is ErrorCode.REBALANCE_IN_PROGRESS
        driver.time_passes(5_999)
        assert len(driver.group.members) == 2
        driver.consumer_heartbeat("m", epoch, owned=None, topics=None)
        driver.time_passes(1)
        assert list(driver.group.members) == ["m"]


def test_memory_is_given_back() -> None:
    """What was tried is not counted, and what is gone neither."""
    driver = Driver()
    driver.settled()
    driver.consumer_heartbeat("m")
    memory = GroupMemory()
    shard = driver.loaded(memory)
    assert driver.memory.used == memory.used > 0
    assert driver.memory.share._used_by == memory.share._used_by
    del shard
    driver.consumer_heartbeat("m", -1)
    driver.time_passes(60_000)
    assert driver.group.empty
    driver.carry_out(driver.shard.delete_group("g"))
    assert driver.memory.used == 0


@pytest.mark.parametrize("gives_up", [False, True])
def test_who_is_on_the_way_to_its_target_joins_again_in_the_classic_group(gives_up: bool) -> None:
    """A static member changes to the classic protocol while another still waits for its part, or still has what it is to give up. As in
    Apache Kafka no member learned of it: two partitions had no reader, or two."""
    driver = Driver()
    if gives_up:
        other = driver.settled()
        driver.consumer_heartbeat("seat-1", instance_id="seat")
        other = driver.join("a", other.member_id, (0, 1, 2, 3))
    else:
        driver.consumer_heartbeat("seat-1", instance_id="seat")
        other = driver.join("a")
    driver.sync("a's sync", other)
    seat = driver.join("seat-2", instance_id="seat")
    assert isinstance(driver.group, ClassicGroup)
    assert driver.sync("seat's sync", seat, instance_id="seat").error is ErrorCode.REBALANCE_IN_PROGRESS
    expected = ErrorCode.ILLEGAL_GENERATION if gives_up else ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(other) is expected
    assert driver.join("a", other.member_id) is None
    again = driver.join("seat-2", seat.member_id, instance_id="seat")
    assert driver.answers["a"].generation == again.generation > other.generation


@pytest.mark.parametrize("grown", [False, True])
def test_what_nobody_has_is_given_out_though_only_a_static_member_changes_its_protocol(grown: bool) -> None:
    """It comes while the group has no assignment yet, or as its topic has grown: Apache Kafka keeps what was there, and the rest is read by
    no member."""
    driver = Driver()
    if grown:
        joined = driver.join("seat-1", instance_id="seat")
        three = encode_assignment([("t", number) for number in range(3)])
        driver.sync("syncs", joined, instance_id="seat", **{joined.member_id.replace("-", "_"): three})
    else:
        driver.settled()
        assert driver.join("seat-1", instance_id="seat") is None
        driver.time_passes(6_500)
        assert driver.answers["seat-1"].generation == 2
    beaten = driver.consumer_heartbeat("seat-2", instance_id="seat")
    assert beaten.assigned == {T: (0, 1, 2, 3)}


def test_an_id_of_a_classic_member_that_has_gone_is_none_in_an_empty_consumer_group() -> None:
    """It was let in: a consumer group with classic members alone."""
    driver = Driver()
    joined = driver.settled()
    epoch = driver.consumer_heartbeat("m").epoch
    driver.carry_out(driver.shard.leave("g", [(joined.member_id, None)], driver.now))
    assert epoch == 2
    driver.consumer_heartbeat("m", -1)
    assert isinstance(driver.group, MixedGroup)
    again = driver.join("a", joined.member_id)
    assert again == JoinResult(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=joined.member_id)
    assert driver.group.empty
    assert driver.join("a").generation == 1
    assert isinstance(driver.group, ClassicGroup)


def test_a_group_that_becomes_a_consumer_group_again_before_all_have_joined_tells_everybody() -> None:
    """A static member goes back and forth: another, that never learned of its part, has to join again, and what one may still read is
    only its own."""
    driver = Driver()
    driver.consumer_heartbeat("seat-1", instance_id="seat")
    waits = driver.join("a")
    driver.join("seat-2", instance_id="seat")
    driver.consumer_heartbeat("seat-3", instance_id="seat")
    assert driver.heartbeat(waits) is ErrorCode.REBALANCE_IN_PROGRESS
    driver = Driver()
    has = driver.settled()
    driver.consumer_heartbeat("seat-1", instance_id="seat")
    driver.join("a", has.member_id, (0, 1, 2, 3))
    driver.join("seat-2", instance_id="seat")
    assert driver.consumer_heartbeat("seat-3", instance_id="seat").assigned == {}


@pytest.mark.parametrize("gone", [False, True])
def test_an_instance_id_without_a_letter_is_one(gone: bool) -> None:
    """As in Kafka: the member is static in a consumer group, and in the classic group that is made of it."""
    driver = Driver()
    driver.consumer_heartbeat("m")
    joined = driver.join("a", instance_id="")
    if gone:
        driver.consumer_heartbeat("m", -1)
    assert isinstance(driver.group, ClassicGroup if gone else MixedGroup)
    (member,) = [each for each in driver.group.members.values() if each.member_id == joined.member_id]
    assert member.instance_id == ""
    assert driver.join("again", instance_id="").member_id != joined.member_id
    assert joined.member_id not in driver.group.members


def test_a_group_whose_members_read_too_much_to_change_at_once_stays() -> None:
    """What is read of all its members together is bounded, and not only what each of them says; names that are said twice are read twice."""
    driver = Driver()
    said = (("range", encode_subscription(Subscription(topics=("t",) * (REQUEST_ELEMENTS_MAX - 1)))),)
    for number in range(SUBSCRIBED_ELEMENTS_MAX // REQUEST_ELEMENTS_MAX + 1):
        driver.join(f"w{number}", protocols=said)
    with pytest.raises(KafkaError, match="more than is moved at once"):
        driver.consumer_heartbeat("m")
