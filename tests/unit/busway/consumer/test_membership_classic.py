"""The protocol state of a classic member: offered strategies, subscriptions, the leader's assignment."""

import pytest

from busway import TopicPartition
from busway.consumer.membership_classic import ClassicMembership
from busway_protocol.assignors.consumer_protocol import decode_assignment, decode_subscription
from busway_protocol.messages.groups_classic import JoinGroupResponseMember

BOTH = ("cooperative-sticky", "range")


def member(*strategies: str) -> ClassicMembership:
    """A dynamic member."""
    return ClassicMembership(instance_id=None, strategies=strategies or BOTH)


@pytest.mark.parametrize("strategies", [(), ("rnage",)])
def test_unknown_strategies_are_refused_by_name(strategies: tuple[str, ...]) -> None:
    """The error lists the known ones."""
    with pytest.raises(ValueError, match=r"partition_assignment_strategy: .* is not among range, "):
        ClassicMembership(instance_id=None, strategies=strategies)


def test_a_cooperative_owner_offers_only_cooperative_strategies() -> None:
    """An eager leader would reassign its partitions before they are revoked."""
    joined = member()
    assert joined.offered == [*BOTH]
    joined.joined("m", 1, "cooperative-sticky")
    assert joined.offered == [*BOTH], "it owns nothing"
    joined.own([TopicPartition("t", 0)])
    assert joined.offered == ["cooperative-sticky"]
    assert joined.narrowed
    joined.joined("m", 2, "range")
    assert joined.offered == [*BOTH]


def test_the_subscription_names_topics_and_owned_partitions() -> None:
    """Topics are sorted; every offered strategy has the same metadata."""
    joined = member()
    joined.joined("m", 4, "range")
    joined.own([TopicPartition("t", 1)])
    protocols = joined.protocols(["u", "t"])
    assert [protocol.name for protocol in protocols] == [*BOTH]
    subscription = decode_subscription(protocols[0].metadata)
    assert subscription.topics == ("t", "u")
    assert subscription.owned_partitions == (("t", 1),)


def test_the_leader_assigns_every_partition_once() -> None:
    """By the chosen strategy, for all members' topics."""
    leader, other = member("range"), member("range")
    leader.joined("a", 1, "range")
    members = [
        JoinGroupResponseMember(member_id=name, metadata=each.protocols([topic])[0].metadata)
        for name, each, topic in (("a", leader, "t"), ("b", other, "t"), ("c", member("range"), "u"))
    ]
    assert leader.wanted_topics(members) == {"t", "u"}
    assigned = {name: sorted(decode_assignment(data)) for name, data in leader.assign(members, {"t": 3, "u": 1})}
    assert assigned == {"a": [("t", 0), ("t", 1)], "b": [("t", 2)], "c": [("u", 0)]}


def test_a_partition_keeps_its_tenure_while_it_is_owned() -> None:
    """A partition that was lost and assigned again has another one."""
    joined = member()
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    joined.own([first, second])
    tenure = joined.tenure(first)
    joined.own([first])
    assert joined.tenure(first) == tenure
    assert joined.tenure(second) is None
    joined.own([second])
    joined.own([first])
    assert joined.tenure(first) not in {None, tenure}
