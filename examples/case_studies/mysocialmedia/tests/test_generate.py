"""A campaign day, without a bus."""

import datetime as dt
import itertools

from mysocialmedia import domain
from mysocialmedia.events import Kind, Mark, Post
from mysocialmedia.generate import Day, Tally

NOON = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)


def test_the_same_seed_makes_the_same_day() -> None:
    """Another one makes another; every activity can be, and all kinds come."""
    day = Day(events=12_000, posts=50)
    first, again = list(day.activities(lambda: NOON)), list(day.activities(lambda: NOON))
    other = list(Day(events=12_000, posts=50, seed=2).activities(lambda: NOON))
    assert first == again
    assert first != other
    assert {activity.kind for activity in first} == set(Kind)
    for activity in first:
        domain.check(activity, NOON)


def test_the_wall_counts_what_the_tally_counts() -> None:
    """The rules and the sets agree on a whole day, and nothing of it is refused."""
    posts: dict[str, Post] = {}
    marks: dict[str, Mark] = {}
    wall, tally, changes = domain.Wall(posts, marks), Tally(), domain.Changes()
    for activity in Day(events=12_000, posts=50).activities(lambda: NOON):
        wall.apply(activity, changes)
        tally.note(activity)
    totals = {post.post_id: (post.likes, post.comments) for post in changes.posts.values() if not post.deleted}
    assert totals == tally.totals
    assert len(tally.deleted) > 0
    sums = (len(totals), *(sum(column) for column in zip(*totals.values(), strict=True)))
    assert (changes.live, changes.likes, changes.comments) == sums


def test_a_burst_comes_twenty_times_as_fast() -> None:
    """After the calm seconds the gaps between activities are a twentieth, then the calm is back."""
    due = list(Day(events=30_000, per_s=100, calm_s=10, burst_s=5).due_s())
    per_s = {second: len(list(group)) for second, group in itertools.groupby(due, key=int)}
    assert {per_s[second] for second in range(1, 9)} <= {99, 100, 101}
    assert all(1990 <= per_s[second] <= 2010 for second in range(11, 14))
    assert per_s[17] in {99, 100, 101}
