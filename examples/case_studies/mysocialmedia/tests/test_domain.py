"""The rules, without a bus."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mysocialmedia import trending
from mysocialmedia.domain import Changes, Impossible, Wall, check, mark_key
from mysocialmedia.events import Activity, Kind, Mark, Post

NOON = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
POST = "p"
AUTHOR = "u0"


def act(kind: Kind, user: str = "u1", *, post: str = POST, comment: str | None = None, second: int = 0) -> Activity:
    """An activity with what its kind needs."""
    of_comment = kind in {Kind.COMMENTED, Kind.COMMENT_DELETED}
    return Activity(
        kind=kind,
        post_id=post,
        user_id=user,
        at=NOON + dt.timedelta(seconds=second),
        comment_id=(comment or "c0") if of_comment else None,
        text="text" if kind in {Kind.POSTED, Kind.COMMENTED} else None,
    )


acts = st.builds(
    lambda kind, user, comment: act(kind, f"u{user}", comment=f"c{comment}"),
    st.sampled_from([Kind.LIKED, Kind.UNLIKED, Kind.COMMENTED, Kind.COMMENT_DELETED] * 3 + [Kind.POSTED, Kind.DELETED]),
    st.integers(0, 2),
    st.integers(0, 1),
)


class Stored:
    """Two topics: what was written last under each key."""

    def __init__(self) -> None:
        self.posts: dict[str, Post] = {}
        self.marks: dict[str, Mark] = {}

    def write(self, changes: Changes) -> None:
        """What a transaction does."""
        self.posts |= changes.posts
        for key, mark in changes.marks.items():
            if mark is not None:
                self.marks[key] = mark
            else:
                self.marks.pop(key, None)

    def wall(self) -> Wall:
        """What a service that starts has."""
        wall = Wall(self.posts, self.marks)
        wall.stored_anew()
        return wall

    def take(self, wall: Wall, activity: Activity) -> Changes:
        """One activity as a batch of its own, stored."""
        changes = Changes()
        wall.apply(activity, changes)
        self.write(changes)
        wall.written(changes)
        return changes


def by_hand(log: list[Activity]) -> tuple[int, int, bool] | None:
    """Likes, comments and whether it is deleted, by definition: sets; None when it was never posted."""
    author = None
    likes: set[str] = set()
    comments: set[tuple[str, str]] = set()
    for activity in log:
        if author is None:
            author = activity.user_id if activity.kind is Kind.POSTED else None
        elif activity.kind is Kind.DELETED and activity.user_id == author:
            return len(likes), len(comments), True
        elif activity.kind is Kind.LIKED:
            likes.add(activity.user_id)
        elif activity.kind is Kind.UNLIKED:
            likes.discard(activity.user_id)
        elif activity.kind is Kind.COMMENTED:
            comments.add((activity.user_id, activity.comment_id or ""))
        elif activity.kind is Kind.COMMENT_DELETED:
            comments.discard((activity.user_id, activity.comment_id or ""))
    return None if author is None else (len(likes), len(comments), False)


@given(
    st.lists(acts, max_size=40),
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.booleans()), max_size=12),
)
def test_totals_are_exact_in_batches_of_any_size_and_from_any_commit_on(
    happened: list[Activity], before: int, steps_: list[tuple[int, bool, bool]]
) -> None:
    """Some batches come again after a crash before their commit, and some services begin again after one: totals and marks are those of the
    sets; what came before the post was there, or is not the author's to delete, is refused."""
    log = [*happened[:before], act(Kind.POSTED, AUTHOR), *happened[before:]]
    stored, committed, steps = Stored(), 0, iter(steps_)
    wall = stored.wall()
    while committed < len(log):
        size, commits, goes_on = next(steps, (5, True, True))
        changes, end = Changes(), min(committed + size, len(log))
        for activity in log[committed:end]:
            try:
                wall.apply(activity, changes)
            except Impossible:
                continue  # to the dead letters
        if commits:
            stored.write(changes)
            wall.written(changes)
            committed = end
        if not (commits and goes_on):
            wall = stored.wall()
    post = stored.posts[POST]
    assert (post.likes, post.comments, post.deleted) == by_hand(log)
    assert len(stored.marks) == (0 if post.deleted else post.likes + post.comments)


def test_liking_twice_counts_once_and_unliking_what_was_not_liked_counts_nothing() -> None:
    """A like is a fact; so is a comment, and others' comments with the same id are others."""
    stored = Stored()
    wall = stored.wall()
    log = [
        act(Kind.POSTED, AUTHOR), act(Kind.UNLIKED), act(Kind.LIKED), act(Kind.LIKED), act(Kind.COMMENTED, comment="c"),
        act(Kind.COMMENTED, comment="c"), act(Kind.COMMENT_DELETED, "u2", comment="c"),
        act(Kind.COMMENTED, "u2", comment="c"),
    ]  # fmt: skip
    ignored = sum(stored.take(wall, activity).ignored for activity in log)
    assert (stored.posts[POST].likes, stored.posts[POST].comments, ignored) == (1, 2, 4)
    assert set(stored.marks) == {mark_key(POST, "u1"), mark_key(POST, "u1", "c"), mark_key(POST, "u2", "c")}


def test_deleting_a_post_ends_its_totals() -> None:
    """Its text and its marks go, what comes later is passed over, and it is not posted again under the same id."""
    stored = Stored()
    wall = stored.wall()
    log = [act(Kind.POSTED, AUTHOR), act(Kind.LIKED), act(Kind.COMMENTED)]
    for activity in log:
        stored.take(wall, activity)
    with pytest.raises(Impossible, match="user_id is 'u1'; a post is deleted by its author"):
        wall.apply(act(Kind.DELETED, "u1"), Changes())
    deleted = stored.take(wall, act(Kind.DELETED, AUTHOR))
    assert (deleted.live, deleted.likes, deleted.comments) == (-1, -1, -1)
    later = [stored.take(wall, act(kind, AUTHOR)).ignored for kind in Kind]
    post = stored.posts[POST]
    assert (later, stored.marks) == ([1] * len(Kind), {})
    assert (post.deleted, post.text, post.likes) == (True, "", 1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"post_id": ""}, "post_id is ''"),
        ({"post_id": "a/b"}, "post_id is 'a/b'; give 1 to 100 characters without '/'"),
        ({"user_id": "u" * 101}, "user_id"),
        ({"comment_id": None}, "comment_id is None"),
        ({"text": None}, "text is missing"),
        ({"text": "x" * 2001}, "text has 2001 characters; 2000 are allowed"),
        ({"at": NOON + dt.timedelta(minutes=6)}, "at is .*set the device's clock"),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_of_its_field(changes: dict[str, object], reason: str) -> None:
    """Each refusal says what would be right."""
    comment = act(Kind.COMMENTED)
    check(comment, NOON)
    for name, value in changes.items():
        setattr(comment, name, value)
    with pytest.raises(Impossible, match=reason):
        check(comment, NOON)


def test_a_like_before_its_post_is_refused() -> None:
    """It changes nothing."""
    changes = Changes()
    with pytest.raises(Impossible, match="there was no such post yet"):
        Stored().wall().apply(act(Kind.LIKED), changes)
    assert changes == Changes()


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7200)), min_size=1, max_size=30), st.integers(7200, 100_000)
)
def test_heat_sorts_posts_as_their_decayed_scores_do(events: list[tuple[int, int]], later: int) -> None:
    """The static key gives the scores computed by definition, at any later time."""
    heats: dict[int, float] = {}
    for post, second in events:
        heats[post] = trending.warmed(heats.get(post, trending.COLD), 1.0, NOON + dt.timedelta(seconds=second))
    now = NOON + dt.timedelta(seconds=later)
    for post, heat in heats.items():
        exact = sum(
            0.5 ** ((later - second) / trending.HALF_LIFE.total_seconds())
            for post_id, second in events
            if post_id == post
        )
        assert abs(trending.score(heat, now) - exact) <= 1e-6 * exact


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 7200)), min_size=1, max_size=30))
def test_what_is_taken_back_is_as_if_it_had_never_warmed(events: list[tuple[bool, int]]) -> None:
    """The heat is that of what stays; what cannot be taken back is its least."""
    posted = trending.warmed(trending.COLD, 1.0, NOON)
    heat = posted
    for _, second in events:
        heat = trending.warmed(heat, 1.0, NOON + dt.timedelta(seconds=second))
    wanted = posted
    for stays, second in events:
        at = NOON + dt.timedelta(seconds=second)
        if stays:
            wanted = trending.warmed(wanted, 1.0, at)
        else:
            heat = trending.cooled(heat, 1.0, at, least=posted)
    assert heat == pytest.approx(wanted, abs=1e-6)


def test_one_user_does_not_heat_a_post_alone() -> None:
    """Sixty likes that are each taken back, and sixty comments, leave a post as hot as one without activity."""
    wall, changes = Wall({}, {}), Changes()
    wall.apply(act(Kind.POSTED, AUTHOR), changes)
    alone = changes.posts[POST].heat
    for _ in range(60):
        wall.apply(act(Kind.LIKED), changes)
        wall.apply(act(Kind.COMMENTED, comment="c"), changes)
        assert changes.posts[POST].heat > alone
        wall.apply(act(Kind.COMMENT_DELETED, comment="c"), changes)
        wall.apply(act(Kind.UNLIKED), changes)
    assert changes.posts[POST].heat == pytest.approx(alone, abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 25), st.integers(-1, 3), st.booleans()), max_size=120))
def test_the_ranking_is_that_of_sorting_everything(steps: list[tuple[int, int, bool]]) -> None:
    """Posts get hotter and cool again, and some are deleted; the ranking says what sorting says, or that it must be made again."""
    posts: dict[str, Post] = {}
    hottest = trending.Hottest(reserve=5)
    for number, warmer, cools in steps:
        post_id = f"p{number:02}"
        old = posts.get(post_id)
        heat = (0.0 if old is None else old.heat) + max(warmer, 0) * (-1 if cools else 1)
        deleted = warmer < 0 or (old is not None and old.deleted)
        posts[post_id] = Post(post_id=post_id, user_id=AUTHOR, text="", at=NOON, heat=heat, deleted=deleted)
        hottest.put(posts[post_id])
        live = sorted(
            (post for post in posts.values() if not post.deleted), key=lambda post: (-post.heat, post.post_id)
        )
        top = hottest.top(3)
        if top is None:
            hottest = trending.Hottest(live, reserve=5)
            top = hottest.top(3)
        assert top == [post.post_id for post in live[:3]]
