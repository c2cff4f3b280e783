"""The events, as they are in the topics.

Here: the types whose Avro schemas are in the registry.
Not here: what follows from them (`domain`, `trending`).
"""

import datetime as dt
import enum
from dataclasses import dataclass, field


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
        post_id: to which post; also the key of the record, so all of a post is in one partition, in its order.
        user_id: who.
        at: when, in UTC.
        comment_id: which of the user's comments on the post, for COMMENTED and COMMENT_DELETED.
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
        post_id, user_id, text, at: which, whose, what, since when; of a deleted post the text is gone.
        likes: users who like it now.
        comments: comments that are there now.
        heat: rank among trending posts, see `trending`.
        deleted: by its author; its totals are final.
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


@dataclass(slots=True, kw_only=True)
class Mark:
    """That a user likes a post, or that a comment is there; its key says which (`domain.mark_key`), a tombstone that it no longer is.

    Attributes:
        at: of the activity that set it; None in marks of earlier releases.
    """

    __avro_namespace__ = "mysocialmedia"

    at: dt.datetime | None = None


@dataclass(slots=True, kw_only=True)
class HotPost:
    """A trending post, as it stood."""

    __avro_namespace__ = "mysocialmedia"

    post_id: str
    user_id: str
    text: str
    likes: int
    comments: int
    heat: float


@dataclass(slots=True, kw_only=True)
class Trending:
    """The hottest posts of one partition; its number is the key. Heats of all partitions compare, so the hottest of all is a merge.

    Attributes:
        posts: hottest first.
    """

    __avro_namespace__ = "mysocialmedia"

    posts: list[HotPost] = field(default_factory=list)
