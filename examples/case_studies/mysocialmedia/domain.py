"""The rules: how activities change totals.

What lives here: the wall, all posts of some partitions with who likes what, as a pure fold over activities. What does not: tables (`service`).

A like is a fact about a post and a user: liking twice counts once. So who likes what must be known, and survives in marks beside the
posts. Both are written to topics, and a crash may come between the two writes. Posts are always written first: a mark is never ahead of
its post. When activities come again after a crash, those that a post knows (at or below its `last_offset`) change no total but do set
or take away their mark, in their order; so the marks are as they were before the first new activity is counted.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from mysocialmedia import trending
from mysocialmedia.events import Activity, Kind, Mark, Post

TEXT_MOST = 2000
ID_MOST = 100


class Impossible(ValueError):
    """An activity that no user can have caused; names the field."""


def check(activity: Activity) -> None:
    """Whether an activity makes sense by itself.

    Raises:
        Impossible: it does not.
    """
    for name in ("post_id", "user_id", "comment_id"):
        found = getattr(activity, name)
        if found is None and (name != "comment_id" or activity.kind not in {Kind.COMMENTED, Kind.COMMENT_DELETED}):
            continue
        if not found or len(found) > ID_MOST or "/" in found or "#" in found:
            raise Impossible(f"{name} is {found!r}; give 1 to {ID_MOST} characters without '/' and '#'")
    if activity.kind in {Kind.POSTED, Kind.COMMENTED} and not activity.text:
        raise Impossible("text is missing; a post and a comment say something")
    if activity.text is not None and len(activity.text) > TEXT_MOST:
        raise Impossible(f"text has {len(activity.text)} characters; {TEXT_MOST} are allowed")


@dataclass(slots=True)
class Changes:
    """What a batch of activities changed, to be written: posts first, then marks."""

    posts: dict[str, Post] = field(default_factory=dict)
    marks: dict[str, tuple[Mark, bool]] = field(default_factory=dict)
    """By key: the mark, and whether it is there now."""
    ignored: int = 0
    """Activities for posts that are deleted, or that said nothing new."""


class Wall:
    """The posts that this instance keeps."""

    def __init__(self) -> None:
        self.posts: dict[str, Post] = {}
        self._likes: dict[str, set[str]] = {}
        self._comments: dict[str, dict[str, str]] = {}

    def put(self, post: Post) -> None:
        """Take a post in as it was stored."""
        self.posts[post.post_id] = post

    def mark(self, mark: Mark, *, there: bool) -> None:
        """Take a mark in as it was stored, or that it is gone."""
        if mark.comment_id is None:
            likes = self._likes.setdefault(mark.post_id, set())
            likes.add(mark.user_id) if there else likes.discard(mark.user_id)
        elif there:
            self._comments.setdefault(mark.post_id, {})[mark.comment_id] = mark.user_id
        else:
            self._comments.get(mark.post_id, {}).pop(mark.comment_id, None)

    def forget(self, post_ids: Iterable[str]) -> None:
        """Drop posts that another instance keeps now."""
        for post_id in post_ids:
            for kept in (self.posts, self._likes, self._comments):
                kept.pop(post_id, None)

    def likes(self, post_id: str, user_id: str) -> bool:
        """Whether the user likes the post."""
        return user_id in self._likes.get(post_id, ())

    def apply(self, activity: Activity, offset: int, changes: Changes) -> None:
        """Take an activity in; what it changes is added to `changes`.

        Raises:
            Impossible: the post is not there, or the activity makes no sense.
        """
        check(activity)
        post = self.posts.get(activity.post_id)
        if activity.kind is Kind.POSTED:
            if post is None:
                self._keep(self._new(activity, offset), changes)
            elif offset > post.last_offset:
                changes.ignored += 1
            return
        if post is None:
            raise Impossible(f"post_id is {activity.post_id!r}; there is no such post")
        known = offset <= post.last_offset
        if post.deleted:
            changes.ignored += not known
            return
        likes, comments, changed = self._marked(activity, changes)
        if known:
            return
        if activity.kind is Kind.DELETED:
            if activity.user_id != post.user_id:
                raise Impossible(f"user_id is {activity.user_id!r}; a post is deleted by its author")
            self._keep(replace(post, deleted=True, last_offset=offset), changes)
            return
        if not changed:
            changes.ignored += 1
            return
        weight = trending.WEIGHTS.get(activity.kind)
        heat = post.heat if weight is None else trending.warmed(post.heat, weight, activity.at)
        self._keep(
            replace(post, likes=post.likes + likes, comments=post.comments + comments, heat=heat, last_offset=offset),
            changes,
        )

    def _new(self, activity: Activity, offset: int) -> Post:
        assert activity.text is not None
        return Post(
            post_id=activity.post_id,
            user_id=activity.user_id,
            text=activity.text,
            at=activity.at,
            heat=trending.warmed(trending.COLD, trending.WEIGHTS[Kind.POSTED], activity.at),
            last_offset=offset,
        )

    def _keep(self, post: Post, changes: Changes) -> None:
        self.posts[post.post_id] = post
        changes.posts[post.post_id] = post

    def _marked(self, activity: Activity, changes: Changes) -> tuple[int, int, bool]:
        """Set or take away the mark; by how much likes and comments change, and whether anything did."""
        post_id, user_id, comment_id = activity.post_id, activity.user_id, activity.comment_id
        if activity.kind in {Kind.LIKED, Kind.UNLIKED}:
            there = activity.kind is Kind.LIKED
            if self.likes(post_id, user_id) is there:
                return 0, 0, False
            mark, step = Mark(post_id=post_id, user_id=user_id), (1 if there else -1, 0)
        elif activity.kind in {Kind.COMMENTED, Kind.COMMENT_DELETED}:
            assert comment_id is not None
            there = activity.kind is Kind.COMMENTED
            author = self._comments.get(post_id, {}).get(comment_id)
            if (author is not None) is there or (not there and author != user_id):
                return 0, 0, False
            mark, step = Mark(post_id=post_id, user_id=user_id, comment_id=comment_id), (0, 1 if there else -1)
        else:
            return 0, 0, False
        self.mark(mark, there=there)
        changes.marks[mark.key] = (mark, there)
        return (*step, True)
