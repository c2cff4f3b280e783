"""What to see next: a trained model, and a viewer's place in it.

Here: putting a model together from its records, fold-in, scores, popularity; pure, in numpy.
Not here: training (`jobs.train`), records on the wire (`model`), which model is served (`recommender`).

A movie's score for a viewer is its average plus the product of two vectors: what is left of its stars, as alternating least squares
explain it. Training gives the movies' vectors. A viewer's vector is solved from what they think *now* (fold-in): the least squares
that Spark solves for each viewer in the last half of its last iteration, with ALS's own regularisation (weighted by the number of
preferences), so a new rating counts at once and the result is what a new training with these movie vectors would give.
"""

import struct
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final, Literal

import numpy as np

from movieflix.events import Complete, ModelPart, MovieFactors, Taste
from movieflix.taste import preferences

COMPLETE: Final = "complete"
COUNT_MOST: Final = 100
"""Recommendations for one viewer at once."""


class Damaged(ValueError):
    """The records of a version are not what its end says; it is not served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A movie, and the stars that the viewer is expected to give; None without any rating yet."""

    movie_id: int
    stars: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendations:
    """What a viewer may see next, the best first.

    Attributes:
        user_id: who.
        version: of the model; None without one.
        by: by what they like, or, while nothing is known of it, by what most viewers have seen.
        movies: at most as many as were asked for.
    """

    user_id: int
    version: int | None
    by: Literal["taste", "popularity"]
    movies: tuple[Recommendation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A whole version.

    Attributes:
        version, complete: as published.
        index: row of a movie.
        movie_ids: by row, ascending.
        averages, factors: float64, (movies,) and (movies, rank).
        popular: rows, the movie with most viewers first.
    """

    version: int
    complete: Complete
    index: Mapping[int, int]
    movie_ids: Any
    averages: Any
    factors: Any
    popular: Any


def part_key(part: ModelPart) -> str:
    """The key of its record."""
    return f"{part.version}/{COMPLETE if part.movie is None else part.movie.movie_id}"


def checksum(movies: Iterable[MovieFactors]) -> int:
    """CRC-32 over the movies in the order of their numbers: number, viewers, average and vector as big-endian 8-byte values."""
    crc = 0
    for movie_factors in sorted(movies, key=lambda movie: movie.movie_id):
        row = struct.pack(
            f">qqd{len(movie_factors.factors)}d",
            movie_factors.movie_id,
            movie_factors.viewers,
            movie_factors.average,
            *movie_factors.factors,
        )
        crc = zlib.crc32(row, crc)
    return crc


def assemble(version: int, complete: Complete, movies: Collection[MovieFactors]) -> Model:
    """The model of these records.

    Raises:
        Damaged: they are not all, or not those that were published.
    """
    if len(movies) != complete.movies:
        raise Damaged(f"model {version} has {len(movies)} movies and not {complete.movies}")
    if not movies:
        raise Damaged(f"model {version} has no movies")
    if any(len(movie.factors) != complete.rank for movie in movies):
        raise Damaged(f"model {version} has vectors that are not of rank {complete.rank}")
    if checksum(movies) != complete.checksum:
        raise Damaged(f"model {version} has another checksum than its end says")
    rows = sorted(movies, key=lambda movie: movie.movie_id)
    averages = np.array([movie.average for movie in rows])
    factors = np.array([movie.factors for movie in rows])
    if not (np.isfinite(averages).all() and np.isfinite(factors).all()):
        raise Damaged(f"model {version} has numbers that are not finite")
    viewers = np.array([movie.viewers for movie in rows])
    movie_ids = np.array([movie.movie_id for movie in rows])
    return Model(
        version=version,
        complete=complete,
        index={movie.movie_id: row for row, movie in enumerate(rows)},
        movie_ids=movie_ids,
        averages=averages,
        factors=factors,
        popular=np.lexsort((movie_ids, -averages, -viewers)),
    )


def fold_in(model: Model, stars: Mapping[int, float]) -> Any:
    """The viewer's vector, float64 (rank,); None while they have said nothing of any movie in the model."""
    known = [(model.index[movie], star) for movie, star in stars.items() if movie in model.index]
    if not known:
        return None
    rows = np.array([row for row, _ in known])
    wanted = np.array([star for _, star in known]) - model.averages[rows]
    factors = model.factors[rows]
    weight = model.complete.regularisation * len(known)
    return np.linalg.solve(factors.T @ factors + weight * np.eye(model.complete.rank), factors.T @ wanted)


def recommend(model: Model, taste: Taste, count: int) -> Recommendations:
    """The best movies that the viewer has not seen.

    Args:
        model: what is known of movies.
        taste: the viewer's; empty for a new viewer.
        count: how many, at most `COUNT_MOST`.
    """
    out = {model.index[seen.movie_id] for seen in taste.seen if seen.movie_id in model.index}
    vector = fold_in(model, preferences(taste))
    scores = model.averages if vector is None else model.averages + model.factors @ vector
    if vector is None:
        order = model.popular
    else:
        # The best `count` that are not seen are among the best `count + seen`; to sort all would be most of the work.
        most = min(count + len(out), len(scores))
        best = np.argpartition(-scores, most - 1)[:most]
        order = best[np.lexsort((model.movie_ids[best], -scores[best]))]
    rows = [int(row) for row in order if int(row) not in out][:count]
    movies = tuple(Recommendation(movie_id=int(model.movie_ids[row]), stars=_stars(float(scores[row]))) for row in rows)
    by: Literal["taste", "popularity"] = "popularity" if vector is None else "taste"
    return Recommendations(user_id=taste.user_id, version=model.version, by=by, movies=movies)


def popularity(tastes: Iterable[Taste]) -> tuple[Recommendation, ...]:
    """For the time without a model: the movies that most of these viewers have seen, with their mean stars."""
    viewers: Counter[int] = Counter()
    given: dict[int, list[float]] = {}
    for taste in tastes:
        viewers.update(seen.movie_id for seen in taste.seen)
        for movie, star in preferences(taste).items():
            given.setdefault(movie, []).append(star)
    return tuple(
        Recommendation(movie_id=movie, stars=_stars(fmean(given[movie])) if movie in given else None)
        for movie in sorted(viewers, key=lambda movie_id: (-viewers[movie_id], movie_id))
    )


def _stars(score: float) -> float:
    """What can be given: a score may lie outside of it."""
    return round(min(max(score, 1.0), 5.0), 3)
