"""The rules: how activities change totals.

Here: `Wall`, which folds activities into posts and marks, and what an activity may be.
Not here: where posts and marks are kept (`service`).

A like is a fact about a post and a user, a comment one about a post, a user and an id: it is there or it is not, and only what changes
that counts. So next to the posts there are marks, one for each fact that holds.

Nothing here asks whether it has seen an activity before: posts, marks and the place in the topic are written in one transaction.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mysocialmedia import trending
from mysocialmedia.events import Activity, Kind, Mark, Post

TEXT_MOST: Final = 2000
ID_MOST: Final = 100
AHEAD_MOST: Final = dt.timedelta(minutes=5)
"""How far a device's clock may be ahead of the bus; a post from next year would be hot until then."""
_SEPARATOR: Final = "/"
_OF_COMMENTS: Final = frozenset({Kind.COMMENTED, Kind.COMMENT_DELETED})
_WITH_TEXT: Final = frozenset({Kind.POSTED, Kind.COMMENTED})
_SETS: Final = {Kind.LIKED: True, Kind.UNLIKED: False, Kind.COMMENTED: True, Kind.COMMENT_DELETED: False}


class Impossible(ValueError):
    """An activity that no user can have caused; names the field."""


def mark_key(post_id: str, user_id: str, comment_id: str | None = None) -> str:
    """The key of a mark: that the user likes the post, or has this comment there."""
    like = f"{post_id}{_SEPARATOR}{user_id}"
    return like if comment_id is None else f"{like}{_SEPARATOR}{comment_id}"


def check(activity: Activity, received: dt.datetime | None = None) -> None:
    """Whether an activity makes sense by itself.

    Args:
        activity: any.
        received: when the bus got it, if that is known.

    Raises:
        Impossible: it does not.
    """
    _check_id("post_id", activity.post_id)
    _check_id("user_id", activity.user_id)
    if activity.kind in _OF_COMMENTS:
        _check_id("comment_id", activity.comment_id)
    if activity.kind in _WITH_TEXT and not activity.text:
        raise Impossible("text is missing; a post and a comment say something")
    if activity.text is not None and len(activity.text) > TEXT_MOST:
        raise Impossible(f"text has {len(activity.text)} characters; {TEXT_MOST} are allowed")
    if received is not None and activity.at - received > AHEAD_MOST:
        raise Impossible(
            f"at is {activity.at.isoformat()}, more than {AHEAD_MOST} after it was received; set the device's clock"
        )


def _check_id(name: str, value: str | None) -> None:
    if not value or len(value) > ID_MOST or _SEPARATOR in value:
        raise Impossible(f"{name} is {value!r:.120}; give 1 to {ID_MOST} characters without {_SEPARATOR!r}")


@dataclass(slots=True)
class Changes:
    """What a batch of activities changes, to be written.

    Attributes:
        posts: by id.
        marks: by key; None for one that is removed.
        ignored: activities that said nothing new, or came for a deleted post.
        live, likes, comments: by how much the sums over all posts that are not deleted change.
    """

    posts: dict[str, Post] = field(default_factory=dict)
    marks: dict[str, Mark | None] = field(default_factory=dict)
    ignored: int = 0
    live: int = 0
    likes: int = 0
    comments: int = 0


class Wall:
    """All posts of some partitions, with what is marked on them.

    Args:
        posts, marks: what is stored; only read here.
        half_life: of what warms a post.
    """

    def __init__(
        self, posts: Mapping[str, Post], marks: Mapping[str, Mark], *, half_life: dt.timedelta = trending.HALF_LIFE
    ) -> None:
        self._posts = posts
        self._marks = marks
        self._half_life = half_life
        self._keys: dict[str, set[str]] = {}
        """The marks of each post, perhaps with some that are gone: what a deleted post takes with it."""

    def stored_anew(self) -> None:
        """The stored marks are others now: partitions came or went."""
        self._keys.clear()
        for key in self._marks:
            self._keys.setdefault(key.partition(_SEPARATOR)[0], set()).add(key)

    def written(self, changes: Changes) -> None:
        """The changes are stored."""
        for key, mark in changes.marks.items():
            if mark is None:
                self._keys.get(key.partition(_SEPARATOR)[0], set()).discard(key)

    def apply(self, activity: Activity, changes: Changes, *, received: dt.datetime | None = None) -> None:
        """Take in the next activity of a partition, on top of what is stored and of `changes`, and add what follows to `changes`.

        Args:
            activity: what.
            changes: of the activities before it that are not stored yet.
            received: when the bus got it, if that is known.

        Raises:
            Impossible: the post is not there, another user deletes it, or the activity makes no sense; `changes` is as it was.
        """
        check(activity, received)
        post = changes.posts.get(activity.post_id) or self._posts.get(activity.post_id)
        if activity.kind is Kind.POSTED:
            if post is None:
                self._post(activity, changes)
            else:
                changes.ignored += 1
            return
        if post is None:
            raise Impossible(f"post_id is {activity.post_id!r}; there was no such post yet")
        if post.deleted:
            changes.ignored += 1
        elif activity.kind is Kind.DELETED:
            self._delete(post, activity, changes)
        else:
            self._mark(post, activity, changes)

    def _post(self, activity: Activity, changes: Changes) -> None:
        changes.live += 1
        changes.posts[activity.post_id] = Post(
            post_id=activity.post_id,
            user_id=activity.user_id,
            text=activity.text or "",
            at=activity.at,
            heat=self._posted_heat(activity.at),
        )

    def _posted_heat(self, at: dt.datetime) -> float:
        return trending.warmed(trending.COLD, trending.WEIGHTS[Kind.POSTED], at, self._half_life)

    def _delete(self, post: Post, activity: Activity, changes: Changes) -> None:
        if activity.user_id != post.user_id:
            raise Impossible(f"user_id is {activity.user_id!r}; a post is deleted by its author")
        changes.live -= 1
        changes.likes -= post.likes
        changes.comments -= post.comments
        changes.posts[post.post_id] = replace(post, deleted=True, text="")
        for key in self._keys.get(post.post_id, ()):
            changes.marks[key] = None

    def _mark(self, post: Post, activity: Activity, changes: Changes) -> None:
        key = mark_key(post.post_id, activity.user_id, activity.comment_id if activity.kind in _OF_COMMENTS else None)
        there = _SETS[activity.kind]
        mark = changes.marks[key] if key in changes.marks else self._marks.get(key)
        if (mark is not None) is there:
            changes.ignored += 1
            return
        changes.marks[key] = Mark(at=activity.at) if there else None
        if there:
            self._keys.setdefault(post.post_id, set()).add(key)
        if post.post_id not in changes.posts:
            post = changes.posts[post.post_id] = replace(post)
        step = 1 if there else -1
        if activity.kind in _OF_COMMENTS:
            post.comments += step
            changes.comments += step
        else:
            post.likes += step
            changes.likes += step
        if there:
            post.heat = trending.warmed(post.heat, trending.WEIGHTS[activity.kind], activity.at, self._half_life)
        elif mark is not None and mark.at is not None:
            weight = trending.WEIGHTS[Kind.COMMENTED if activity.kind in _OF_COMMENTS else Kind.LIKED]
            post.heat = trending.cooled(
                post.heat, weight, mark.at, least=self._posted_heat(post.at), half_life=self._half_life
            )
