"""The events, as they are in the topics.

Here: the types whose Avro schemas are in the registry.
Not here: what follows from them (`domain`).
"""

import datetime as dt
import enum
from dataclasses import dataclass, field


class Action(enum.Enum):
    """What a viewer's device tells."""

    STARTED = "STARTED"
    PLAYING = "PLAYING"
    STOPPED = "STOPPED"


@dataclass(slots=True, kw_only=True)
class Watched:
    """A device tells how far a viewer is in a movie.

    Attributes:
        user_id, movie_id: who watches what.
        action: what happened.
        position_s: seconds into the movie.
        length_s: seconds of the whole movie.
        played_s: seconds played since the last event of this viewing.
        device: where.
        at: when, in UTC.
        rating: stars from 1 to 5, if the viewer gave some.
    """

    __avro_namespace__ = "movieflix"

    user_id: int
    movie_id: int
    action: Action
    position_s: int
    length_s: int
    played_s: int
    device: str
    at: dt.datetime
    rating: float | None = None


@dataclass(slots=True, kw_only=True)
class Resume:
    """Where a viewer stopped in a movie that is not finished."""

    __avro_namespace__ = "movieflix"

    movie_id: int
    position_s: int
    length_s: int
    device: str
    at: dt.datetime


@dataclass(slots=True, kw_only=True)
class Profile:
    """What is known of a viewer; the newest one for each user stays in the compacted topic.

    Attributes:
        user_id: whose.
        events: how many events went into it.
        started, finished: viewings; a movie that is seen twice counts twice.
        watched_s: seconds played.
        ratings, rating_sum: how many, and their sum.
        loved: movies with four stars or more, newest first.
        resume: movies to go on with, newest first.
        last_offset: the last event that went in, by its offset in the user's partition; what is at or below it is known already.
    """

    __avro_namespace__ = "movieflix"

    user_id: int
    events: int = 0
    started: int = 0
    finished: int = 0
    watched_s: int = 0
    ratings: int = 0
    rating_sum: float = 0.0
    loved: list[int] = field(default_factory=list)
    resume: list[Resume] = field(default_factory=list)
    last_offset: int = -1


@dataclass(slots=True, kw_only=True)
class Seen:
    """What a viewer's devices reported of one movie.

    Attributes:
        movie_id: which.
        share: the furthest position, as a share of the movie; 0 to 1.
        stopped: whether the viewer has stopped it at least once; before, nothing can be said of how they like it.
        rating: the newest stars, if any.
    """

    __avro_namespace__ = "movieflix"

    movie_id: int
    share: float
    stopped: bool = False
    rating: float | None = None


@dataclass(slots=True, kw_only=True)
class Taste:
    """All that a viewer has seen: what the next recommendation is made of, and what is in none.

    Attributes:
        user_id: whose.
        seen: one for each movie, the one that was changed last first.
        last_offset: as in `Profile`.
    """

    __avro_namespace__ = "movieflix"

    user_id: int
    seen: list[Seen] = field(default_factory=list)
    last_offset: int = -1


@dataclass(slots=True, kw_only=True)
class MovieFactors:
    """One movie in a model.

    Attributes:
        movie_id: which.
        average: stars from all viewers, pulled towards the mean of all movies while they are few.
        viewers: how many preferences there were.
        factors: what is left beside the average, as a vector.
    """

    __avro_namespace__ = "movieflix"

    movie_id: int
    average: float
    viewers: int
    factors: list[float]


@dataclass(slots=True, kw_only=True)
class Complete:
    """The end of a model: all of its movies have been written before.

    Attributes:
        movies: how many.
        checksum: over all of them; see `recommend.checksum`.
        rank: length of every vector.
        regularisation: of the least squares; for fold-in it must be that of the training.
        preferences, viewers: what it was trained on.
        rmse, baseline_rmse: in stars on `held_out` preferences that a first training did not see, and of the mean of all stars there.
        held_out: how many.
        trained_at: in UTC.
    """

    __avro_namespace__ = "movieflix"

    movies: int
    checksum: int
    rank: int
    regularisation: float
    preferences: int
    viewers: int
    rmse: float
    baseline_rmse: float
    held_out: int
    trained_at: dt.datetime


@dataclass(slots=True, kw_only=True)
class ModelPart:
    """A record of the topic `movieflix.model`, by the key `<version>/<movie>` or `<version>/complete`.

    Attributes:
        version: a newer one is a larger number.
        movie, complete: one of the two.
    """

    __avro_namespace__ = "movieflix"

    version: int
    movie: MovieFactors | None = None
    complete: Complete | None = None
