"""What a member of a group that its coordinator balances says: what is new, and everything after a doubt."""

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from busway.consumer.membership_modern import (
    DesiredSubscription,
    HeartbeatState,
    Identity,
    Share,
    TargetAssignment,
    leave_request,
    resolved,
)
from busway_protocol.messages.groups_modern import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

ME = Identity(group="g", member_id="m", instance_id=None)
WISH = DesiredSubscription(topics=("t",), rebalance_timeout_ms=1000)
THINGS, OTHERS = UUID(int=1), UUID(int=2)


def answer(epoch: int, share: Share | None = None) -> ConsumerGroupHeartbeatResponse:
    """The coordinator's, with an assignment or none."""
    assignment = None
    if share is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=[number]) for topic_id, number in sorted(share)
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=0, member_epoch=epoch, heartbeat_interval_ms=5000, assignment=assignment
    )


def said(request: ConsumerGroupHeartbeatRequest) -> Share | None:
    """The partitions that a request names."""
    if request.topic_partitions is None:
        return None
    return frozenset((topic.topic_id, number) for topic in request.topic_partitions for number in topic.partitions)


def joined() -> HeartbeatState:
    """A dialogue whose join was answered with one partition, at epoch 3."""
    dialogue = HeartbeatState(ME, WISH)
    dialogue.request()
    dialogue.answered(answer(3, frozenset({(THINGS, 0)})))
    return dialogue


def test_a_join_says_everything_and_owns_nothing() -> None:
    """As the coordinator asks of epoch 0."""
    request = HeartbeatState(ME, replace(WISH, assignor="range")).request()
    assert (request.member_epoch, request.member_id, request.rebalance_timeout_ms) == (0, "m", 1000)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], None)
    assert (request.server_assignor, request.topic_partitions) == ("range", [])


def test_only_what_changed_is_said() -> None:
    """Then nothing but who speaks."""
    dialogue = joined()
    request = dialogue.request()
    assert (request.member_epoch, request.rebalance_timeout_ms) == (3, -1)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (None, None)
    assert (request.server_assignor, request.topic_partitions) == (None, None)
    dialogue.answered(answer(3))
    dialogue.wants(replace(WISH, topics=(), pattern="a.*"))
    assert dialogue.has_news
    request = dialogue.request()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "a.*")
    dialogue.answered(answer(3))
    dialogue.wants(WISH)
    request = dialogue.request()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], "")


def test_an_assignment_that_is_not_named_is_the_one_before() -> None:
    """Null means unchanged, an empty one means none."""
    dialogue = joined()
    dialogue.request()
    assert dialogue.answered(answer(4)) == TargetAssignment(4, frozenset({(THINGS, 0)}))
    dialogue.request()
    assert dialogue.answered(answer(4, frozenset())) == TargetAssignment(4, frozenset())


def test_every_step_is_acknowledged_even_if_it_ends_where_it_began() -> None:
    """A partition that came and went before the coordinator heard of it: it waits for a word all the same."""
    dialogue = joined()
    dialogue.has(frozenset(), done=True)
    assert said(dialogue.request()) == frozenset()


def test_after_a_doubt_everything_is_said_with_what_the_member_has_begun_to_take() -> None:
    """Otherwise the coordinator could take it for given up."""
    dialogue = joined()
    dialogue.has(frozenset({(THINGS, 0)}), done=False)
    assert said(dialogue.request()) is None
    dialogue.unanswered()
    request = dialogue.request()
    assert said(request) == {(THINGS, 0)}
    assert (request.rebalance_timeout_ms, request.subscribed_topic_names) == (1000, ["t"])
    assert request.subscribed_topic_regex == ""


def test_what_changes_while_a_request_is_on_its_way_is_said_in_the_next() -> None:
    """The answer is about what was sent."""
    dialogue = joined()
    dialogue.request()
    dialogue.has(frozenset({(THINGS, 0)}), done=True)
    dialogue.answered(answer(3))
    assert dialogue.has_news
    assert said(dialogue.request()) == {(THINGS, 0)}


def test_a_static_member_leaves_for_a_while() -> None:
    """By -2; any other by -1."""
    assert leave_request(ME).member_epoch == -1
    assert leave_request(replace(ME, instance_id="one")).member_epoch == -2


def test_topics_without_a_name_wait() -> None:
    """What has one is taken over."""
    share = frozenset({(THINGS, 0), (OTHERS, 1)})
    assert resolved(share, {THINGS: "t"}) == ({(THINGS, 0)}, {OTHERS})


_SHARES = st.frozensets(st.tuples(st.sampled_from([THINGS, OTHERS]), st.integers(0, 2)))
_WISHES = st.builds(
    DesiredSubscription,
    topics=st.sampled_from([("a",), ("a", "b")]),
    pattern=st.sampled_from([None, "x.*"]),
    rebalance_timeout_ms=st.just(1000),
)
_STEPS = st.one_of(
    st.tuples(st.just("wants"), _WISHES),
    st.tuples(st.just("has"), _SHARES),
    st.tuples(st.just("beat"), st.sampled_from(["answered", "request lost", "answer lost"])),
)


@given(_WISHES, st.lists(_STEPS, max_size=30))
def test_the_coordinator_knows_what_the_member_wants_and_has(
    wish: DesiredSubscription, steps: list[tuple[str, object]]
) -> None:
    """Whatever is lost on the way: after an answered beat it knows everything."""
    dialogue = HeartbeatState(ME, wish)
    has: Share = frozenset()
    topics: list[str] | None = None
    pattern: str | None = None
    owned: Share | None = None
    epoch = 0
    for step, what in [*steps, ("beat", "answered")]:
        if step == "wants":
            assert isinstance(what, DesiredSubscription)
            wish = what
            dialogue.wants(wish)
        elif step == "has" and epoch:
            assert isinstance(what, frozenset)
            has = what
            dialogue.has(has, done=True)
        elif step == "beat":
            request = dialogue.request()
            if what != "request lost":
                topics = topics if request.subscribed_topic_names is None else request.subscribed_topic_names
                if request.member_epoch == 0:
                    pattern = None
                pattern = pattern if request.subscribed_topic_regex is None else request.subscribed_topic_regex or None
                named = said(request)
                owned = owned if named is None else named
            if what == "answered":
                epoch += 1
                dialogue.answered(answer(epoch))
                assert (topics, pattern, owned) == (list(wish.topics), wish.pattern, has)
                assert not dialogue.has_news
            else:
                dialogue.unanswered()
