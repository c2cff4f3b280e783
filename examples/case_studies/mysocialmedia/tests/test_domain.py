"""The rules, without a bus."""

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st
from mysocialmedia import trending
from mysocialmedia.domain import Changes, Wall
from mysocialmedia.events import Activity, Kind, Mark, Post

NOON = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
POST = "p"

acts = st.builds(
    lambda kind, user, comment, second: Activity(
        kind=kind,
        post_id=POST,
        user_id=f"u{user}",
        at=NOON + dt.timedelta(seconds=second),
        comment_id=f"c{comment}" if kind in {Kind.COMMENTED, Kind.COMMENT_DELETED} else None,
        text="text" if kind is Kind.COMMENTED else None,
    ),
    st.sampled_from([Kind.LIKED, Kind.UNLIKED, Kind.COMMENTED, Kind.COMMENT_DELETED]),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 100),
)


def posted() -> Activity:
    """The post that everything happens to."""
    return Activity(kind=Kind.POSTED, post_id=POST, user_id="u0", at=NOON, text="text")


class Stored:
    """Two topics: what was written last under each key."""

    def __init__(self) -> None:
        self.posts: dict[str, Post] = {}
        self.marks: dict[str, Mark] = {}

    def write_posts(self, changes: Changes) -> None:
        """The first write."""
        self.posts |= changes.posts

    def write_marks(self, changes: Changes) -> None:
        """The second one."""
        for key, (mark, there) in changes.marks.items():
            if there:
                self.marks[key] = mark
            else:
                self.marks.pop(key, None)

    def wall(self) -> Wall:
        """What a service that starts reads back."""
        wall = Wall()
        for post in self.posts.values():
            wall.put(post)
        for mark in self.marks.values():
            wall.mark(mark, there=True)
        return wall


def by_hand(log: list[Activity]) -> tuple[int, int]:
    """Likes and comments by definition: sets."""
    likes: set[str] = set()
    comments: dict[str, str] = {}
    for one in log:
        if one.kind is Kind.LIKED:
            likes.add(one.user_id)
        elif one.kind is Kind.UNLIKED:
            likes.discard(one.user_id)
        elif one.kind is Kind.COMMENTED:
            comments.setdefault(one.comment_id or "", one.user_id)
        elif one.kind is Kind.COMMENT_DELETED and comments.get(one.comment_id or "") == one.user_id:
            del comments[one.comment_id or ""]
    return len(likes), len(comments)


@given(
    st.lists(acts, max_size=40),
    st.lists(st.tuples(st.integers(1, 7), st.sampled_from(["none", "posts", "both"])), max_size=20),
)
def test_totals_are_exact_whatever_crash_comes_between_the_writes(
    happened: list[Activity], crashes: list[tuple[int, str]]
) -> None:
    """Batches of any size, a crash after neither, the first, or both writes and before the commit: totals are those of the sets."""
    log = [posted(), *happened]
    stored, committed, steps = Stored(), 0, iter(crashes)
    wall = stored.wall()
    while committed < len(log):
        size, crash = next(steps, (5, "no"))
        changes, end = Changes(), min(committed + size, len(log))
        for offset in range(committed, end):
            wall.apply(log[offset], offset, changes)
        if crash in {"posts", "both", "no"}:
            stored.write_posts(changes)
        if crash in {"both", "no"}:
            stored.write_marks(changes)
        if crash == "no":
            committed = end
        else:
            wall = stored.wall()
    post = stored.posts[POST]
    assert (post.likes, post.comments) == by_hand(log)
    assert len(stored.marks) == post.likes + post.comments


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7200)), min_size=1, max_size=30), st.integers(7200, 100_000)
)
def test_heat_sorts_posts_as_their_decayed_scores_do(events: list[tuple[int, int]], later: int) -> None:
    """The static key gives the order of the scores computed by definition, at any later time."""
    heats: dict[int, float] = {}
    for post, second in events:
        heats[post] = trending.warmed(heats.get(post, trending.COLD), 1.0, NOON + dt.timedelta(seconds=second))
    now = NOON + dt.timedelta(seconds=later)
    for post, heat in heats.items():
        exact = sum(
            0.5 ** ((later - second) / trending.HALF_LIFE.total_seconds()) for one, second in events if one == post
        )
        assert abs(trending.score(heat, now) - exact) <= 1e-6 * exact
