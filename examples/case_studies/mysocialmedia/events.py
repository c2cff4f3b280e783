"""The events, as they are in the topics.

What lives here: the types whose Avro schemas are in the registry. What does not: what follows from them (`domain`, `trending`).
"""

import datetime as dt
import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    """What a user did."""

    POSTED = "POSTED"
    LIKED = "LIKED"
    UNLIKED = "UNLIKED"
    COMMENTED = "COMMENTED"
    COMMENT_DELETED = "COMMENT_DELETED"
    DELETED = "DELETED"


@dataclass(slots=True, kw_only=True)
class Activity:
    """A user did something to a post.

    Attributes:
        kind: what.
        post_id: to which post; the topic is partitioned by it.
        user_id: who.
        at: when, in UTC.
        comment_id: which comment, chosen by the user's device, for COMMENTED and COMMENT_DELETED.
        text: of the post or the comment.
    """

    __avro_namespace__ = "mysocialmedia"

    kind: Kind
    post_id: str
    user_id: str
    at: dt.datetime
    comment_id: str | None = None
    text: str | None = None


@dataclass(slots=True, kw_only=True)
class Post:
    """A post with its totals; the newest one for each id stays in the compacted topic.

    Attributes:
        post_id, user_id, text, at: which, whose, what, since when.
        likes: users who like it now.
        comments: comments that are there now.
        heat: rank among trending posts, see `trending`.
        deleted: by its author; its totals are final.
        last_offset: the newest activity that went in, by its offset in the post's partition; what is at or below is known already.
    """

    __avro_namespace__ = "mysocialmedia"

    post_id: str
    user_id: str
    text: str
    at: dt.datetime
    likes: int = 0
    comments: int = 0
    heat: float = 0.0
    deleted: bool = False
    last_offset: int = -1


@dataclass(slots=True, kw_only=True)
class Mark:
    """That a user likes a post, or that a comment is there; deleted (a tombstone) when it no longer is.

    Attributes:
        post_id: of which post.
        user_id: who likes it, or who wrote the comment.
        comment_id: which comment; None for a like.
    """

    __avro_namespace__ = "mysocialmedia"

    post_id: str
    user_id: str
    comment_id: str | None = None

    @property
    def key(self) -> str:
        """Its key in the topic of marks."""
        return f"{self.post_id}/{self.user_id}" if self.comment_id is None else f"{self.post_id}#{self.comment_id}"


@dataclass(slots=True, kw_only=True)
class Trending:
    """The posts that are hottest right now.

    Attributes:
        at: as of when, in event time.
        post_ids: hottest first.
    """

    __avro_namespace__ = "mysocialmedia"

    at: dt.datetime
    post_ids: list[str]
