"""Real MovieLens ratings → watch events.

Here: finding the ratings, and telling a viewing from each.
Not here: sending (`demo`).

The ratings are the MovieLens sample that ships inside the `pyspark` package; where that is not installed, an extract of it in `data/`,
taken from Apache Spark, which distributes the sample under the Apache License 2.0 (see `NOTICE`). How far a viewer watched is not in
the ratings; it is made from them, always in the same way: the more stars, the further.
"""

import datetime as dt
import importlib.util
import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from movieflix.events import Action, Watched

EXTRACT: Final = Path(__file__).parent / "data" / "ratings_extract.txt"
_IN_PYSPARK: Final = Path("data/mllib/als/sample_movielens_ratings.txt")
_DEVICES: Final = ("tv", "phone", "tablet", "laptop")
_AGAIN: Final = dt.timedelta(days=30)
_SHORTEST_S, _SPREAD_S = 80 * 60, 60 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """One line: stars from 1 to 5."""

    user_id: int
    movie_id: int
    stars: float
    at: dt.datetime


class BadRatings(ValueError):
    """A file does not hold ratings; names the line."""


def source() -> Path:
    """The file: the one inside pyspark if it is installed, else the extract."""
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        inside = Path(spec.origin).parent / _IN_PYSPARK
        if inside.exists():
            return inside
    return EXTRACT


def read(path: Path) -> Iterator[Rating]:
    """The ratings in a file of `user::movie::stars::seconds since 1970`.

    Raises:
        BadRatings: a line is something else.
    """
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            user, movie, stars, seconds = line.split("::")
            yield Rating(
                user_id=int(user),
                movie_id=int(movie),
                stars=float(stars),
                at=dt.datetime.fromtimestamp(int(seconds), dt.UTC),
            )
        except ValueError:
            raise BadRatings(f"{path}, line {number}: {line[:60]!r} is not user::movie::stars::seconds") from None


def viewings(ratings: Iterable[Rating]) -> Iterator[Watched]:
    """Three events for each rating: started, half way, stopped with the stars; viewers take turns, as they do in life."""
    for rating in _in_turns(ratings):
        yield from _viewing(rating)


def _viewing(rating: Rating) -> Iterator[Watched]:
    length_s = _SHORTEST_S + (rating.movie_id * 1009) % _SPREAD_S
    stop_s = round(length_s * rating.stars / 5)
    half_s = stop_s // 2
    device = _DEVICES[(rating.user_id + rating.movie_id) % len(_DEVICES)]
    begun = rating.at + dt.timedelta(hours=rating.movie_id)
    for action, position_s, played_s, stars in (
        (Action.STARTED, 0, 0, None),
        (Action.PLAYING, half_s, half_s, None),
        (Action.STOPPED, stop_s, stop_s - half_s, rating.stars),
    ):
        yield Watched(
            user_id=rating.user_id,
            movie_id=rating.movie_id,
            action=action,
            position_s=position_s,
            length_s=length_s,
            played_s=played_s,
            device=device,
            at=begun + dt.timedelta(seconds=position_s),
            rating=stars,
        )


def later(ratings: Iterable[Rating], seed: int) -> Iterator[Watched]:
    """Go on without end: the same viewers see their movies again, each time with stars of another mood.

    Args:
        seed: of the moods.
    """
    known = list(ratings)
    chance = random.Random(seed)  # noqa: S311 - moods, the same for a seed
    for again in itertools.count(1):
        for rating in chance.sample(known, len(known)):
            stars = min(max(rating.stars + chance.choice((-1, 0, 0, 1)), 1.0), 5.0)
            yield from _viewing(replace(rating, stars=stars, at=rating.at + again * _AGAIN))


def _in_turns(ratings: Iterable[Rating]) -> Iterator[Rating]:
    by_user: dict[int, list[Rating]] = {}
    for rating in ratings:
        by_user.setdefault(rating.user_id, []).append(rating)
    for turn in itertools.zip_longest(*by_user.values()):
        yield from (rating for rating in turn if rating is not None)
