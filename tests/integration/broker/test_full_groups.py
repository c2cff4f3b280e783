"""A group that has as many members as it may: the next one is refused on the wire, and comes in when one has gone."""

from tests.integration.broker.consumer_groups_scenarios import member
from tests.integration.broker.groups_probe import run_against

from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode

SETTINGS = {
    "group.max.size": "1",
    "group.consumer.max.size": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}


async def test_a_full_classic_group_takes_no_other_member() -> None:
    """JoinGroup answers GROUP_MAX_SIZE_REACHED and no member id in each version; the member that is in notices nothing."""
    async with (
        LocalCluster(properties=SETTINGS) as cluster,
        run_against(cluster.bootstrap_servers) as run,
    ):
        first, second = await run.peer("a", "full"), await run.peer("b", "full")
        assert (await first.enter()).error_code == ErrorCode.NONE
        assert (await first.sync([(first.member_id, b"all")])).error_code == ErrorCode.NONE
        for version in (2, 3, 4, 9):
            refused = await second.join(at_most=version)
            assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, ""), version
        assert (await first.heartbeat()).error_code == ErrorCode.NONE
        (group,) = (await first.describe("full")).groups
        assert [each.member_id for each in group.members] == [first.member_id]
        assert (await first.leave()).error_code == ErrorCode.NONE
        assert (await second.enter()).error_code == ErrorCode.NONE


async def test_a_full_consumer_group_takes_no_other_member() -> None:
    """ConsumerGroupHeartbeat answers GROUP_MAX_SIZE_REACHED and says how many there may be; the member that is in keeps its epoch and
    all that it reads."""
    async with (
        LocalCluster(properties=SETTINGS) as cluster,
        run_against(cluster.bootstrap_servers) as run,
    ):
        first, second = await member(run, "a", "full"), await member(run, "b", "full")
        assert (await first.join()).error_code == ErrorCode.NONE
        epoch = first.epoch
        refused = await second.join()
        assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert "maximum capacity of 1 members" in refused.error_message
        assert (refused.member_epoch, refused.assignment) == (0, None)
        confirmed = await first.confirm("goes on")
        assert (confirmed.error_code, confirmed.member_epoch) == (ErrorCode.NONE, epoch)
        assert first.owned
        assert (await first.leave()).error_code == ErrorCode.NONE
        assert (await second.join()).error_code == ErrorCode.NONE
