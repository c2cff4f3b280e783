"""Which group protocol a consumer speaks, by what brokers serve."""

from typing import Any, cast

import pytest

from busway.cluster.client import ClusterClient
from busway.consumer.group import Listener
from busway.consumer.group_classic import ClassicMember
from busway.consumer.group_modern import ModernMember
from busway.consumer.protocols import group_member
from busway.errors import UnsupportedByBroker
from busway.options import ConsumerOptions, options_from


class Broker:
    """A connection to one that serves ConsumerGroupHeartbeat up to a version, and has finalized a level."""

    def __init__(self, version: int | None, level: int) -> None:
        self._version = version
        self._level = level

    async def any_connection(self) -> "Broker":
        """Itself."""
        return self

    def feature(self, _: str) -> int:
        """The level."""
        return self._level

    def version(self, _: object) -> int:
        """The version."""
        if self._version is None:
            raise UnsupportedByBroker("none")
        return self._version


async def member(broker: Broker, **options: Any) -> object:
    """Of the group g."""

    async def callback(*_: object) -> None: ...

    cluster = cast("ClusterClient", broker)
    listener = Listener(on_revoked=callback, on_assigned=callback, on_lost=callback)
    return await group_member(
        cluster, ConsumerOptions(group_id="g", **options), connect=lambda: cluster, listener=listener
    )


@pytest.mark.parametrize("broker", [Broker(None, 1), Broker(0, 1)], ids=["no key", "v0"])
async def test_brokers_that_do_not_balance_groups_have_classic_ones(broker: Broker) -> None:
    """And are named where they were to."""
    assert isinstance(await member(broker), ClassicMember)
    with pytest.raises(UnsupportedByBroker, match="group_protocol='consumer' needs brokers"):
        await member(broker, group_protocol="consumer")
    with pytest.raises(UnsupportedByBroker, match="group_remote_assignor"):
        await member(broker, group_remote_assignor="range")


async def test_a_protocol_that_the_cluster_has_not_agreed_on_is_spoken_where_it_is_asked_for() -> None:
    """Served, and not finalized."""
    assert isinstance(await member(Broker(1, 0)), ClassicMember)
    assert isinstance(await member(Broker(1, 0), group_protocol="consumer"), ModernMember)


async def test_brokers_that_balance_groups_do_so_by_default() -> None:
    """Unless the classic protocol is asked for."""
    broker = Broker(1, 1)
    assert isinstance(await member(broker), ModernMember)
    assert isinstance(await member(broker, group_protocol="consumer"), ModernMember)
    assert isinstance(await member(broker, group_protocol="classic"), ClassicMember)


async def test_who_says_auto_may_say_how_to_share_in_either_protocol() -> None:
    """By options of both; what the brokers serve decides which of them count."""
    both = {"group_protocol": "auto", "group_remote_assignor": "range", "partition_assignment_strategy": ("range",)}
    options = options_from(ConsumerOptions, {"group_id": "g", **both})
    assert options.group_protocol == "auto"
    given = {name: getattr(options, name) for name in both}
    assert isinstance(await member(Broker(1, 1), **given), ModernMember)
    assert isinstance(await member(Broker(1, 0), **given), ClassicMember)
    assert isinstance(await member(Broker(None, 0), **given), ClassicMember)


async def test_a_static_member_is_classic_unless_it_says_otherwise() -> None:
    """There it is let in again at once after it was killed."""
    broker, range_ = Broker(1, 1), ("range",)
    static = {"group_instance_id": "i"}
    both = {"group_remote_assignor": "range", "partition_assignment_strategy": range_}
    assert isinstance(await member(broker, **static), ClassicMember)
    assert isinstance(await member(broker, **static, **both), ClassicMember)
    assert isinstance(await member(broker, **static, group_remote_assignor="range"), ModernMember)
    assert isinstance(await member(broker, **static, group_protocol="consumer"), ModernMember)
