"""Tastes and recommendations, without IO."""

import dataclasses
import datetime as dt
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from movieflix import model, recommend, taste
from movieflix.events import Action, Complete, ModelPart, MovieFactors, Seen, Taste, Watched

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def event(**changes: object) -> Watched:
    """A viewer half way through movie 7."""
    given = {
        "user_id": 1, "movie_id": 7, "action": Action.PLAYING, "position_s": 3000, "length_s": 6000, "played_s": 100,
        "device": "tv", "at": AT, **changes,
    }  # fmt: skip
    return Watched(**given)  # type: ignore[arg-type]


def movies(*rows: tuple[int, float, int, list[float]]) -> list[MovieFactors]:
    """(number, average, viewers, vector) each."""
    return [
        MovieFactors(movie_id=movie_id, average=average, viewers=viewers, factors=factors)
        for movie_id, average, viewers, factors in rows
    ]


def complete(of: list[MovieFactors], **changes: object) -> Complete:
    """The end that fits these movies."""
    given = {
        "movies": len(of), "checksum": recommend.checksum(of), "rank": 2, "regularisation": 0.1, "preferences": 9,
        "viewers": 3, "rmse": 0.9, "baseline_rmse": 1.1, "held_out": 2, "trained_at": AT, **changes,
    }  # fmt: skip
    return Complete(**given)  # type: ignore[arg-type]


SPACE, LOVE = [1.0, 0.0], [0.0, 1.0]
MOVIES = movies((1, 3.0, 9, SPACE), (2, 3.0, 5, SPACE), (3, 3.1, 7, LOVE), (4, 2.9, 8, LOVE))
MODEL = recommend.assemble(5, complete(MOVIES), MOVIES)


def of(**stars: float) -> Taste:
    """A viewer who gave stars: m1=5.0."""
    return Taste(user_id=1, seen=[Seen(movie_id=int(m[1:]), share=1.0, rating=rating) for m, rating in stars.items()])


def ids(recommendations: recommend.Recommendations) -> list[int]:
    """Their movies."""
    return [movie.movie_id for movie in recommendations.movies]


def test_stars_count_more_than_the_share_watched_and_nothing_counts_before_a_stop() -> None:
    """While a movie plays it is unknown; once stopped the share tells; stars, once given, stay."""
    known = taste.apply(Taste(user_id=1), event(), 0)
    assert taste.preferences(known) == {}
    known = taste.apply(known, event(action=Action.STOPPED), 1)
    assert taste.preferences(known) == {7: 3.0}
    known = taste.apply(known, event(rating=2.0), 2)
    known = taste.apply(known, event(position_s=6000), 3)
    assert taste.preferences(known) == {7: 2.0}
    assert known.seen == [Seen(movie_id=7, share=1.0, stopped=True, rating=2.0)]


@given(st.lists(st.integers(0, 5), max_size=30))
def test_events_that_come_again_change_no_taste(repeats: list[int]) -> None:
    """However often the newest events are delivered again, the taste is that of delivering each once."""
    once = twice = Taste(user_id=1)
    history: list[tuple[int, Watched]] = []
    for offset, back in enumerate(repeats):
        seen = event(movie_id=back, position_s=offset, action=Action.STOPPED)
        history.append((offset, seen))
        once = taste.apply(once, seen, offset)
        for known, again in history[-1 - back :]:
            twice = taste.apply(twice, again, known)
    assert once == twice


def test_a_new_rating_turns_the_recommendation() -> None:
    """Who loved one movie of a kind is given the others of it first; who did not, last."""
    assert ids(recommend.recommend(MODEL, of(m1=5.0), 3)) == [2, 3, 4]
    assert ids(recommend.recommend(MODEL, of(m1=1.0), 3)) == [3, 4, 2]


def test_what_was_seen_is_never_recommended() -> None:
    """Nor what was only begun."""
    begun = Taste(user_id=1, seen=[Seen(movie_id=2, share=0.01), Seen(movie_id=1, share=1.0, rating=5.0)])
    assert ids(recommend.recommend(MODEL, begun, 10)) == [3, 4]


def test_somebody_new_is_given_what_most_have_seen() -> None:
    """Without preferences the order is that of viewers, and says so."""
    recommendations = recommend.recommend(MODEL, Taste(user_id=8), 10)
    assert (ids(recommendations), recommendations.by, recommendations.version) == ([1, 4, 3, 2], "popularity", 5)
    unknown = recommend.recommend(MODEL, of(m99=5.0), 10)
    assert (ids(unknown), unknown.by) == ([1, 4, 3, 2], "popularity")


def test_without_a_model_the_viewers_themselves_tell_what_is_popular() -> None:
    """Most seen first, with the mean of their stars."""
    popular = recommend.popularity(
        [of(m1=5.0, m2=2.0), of(m2=4.0), Taste(user_id=3, seen=[Seen(movie_id=9, share=0.1)])]
    )
    assert [(movie.movie_id, movie.stars) for movie in popular] == [(2, 3.0), (1, 5.0), (9, None)]


@given(
    st.dictionaries(st.integers(1, 4), st.floats(1, 5), min_size=1),
    st.floats(0.01, 1),
)
def test_fold_in_is_the_least_squares_minimum(stars: dict[int, float], regularisation: float) -> None:
    """A step in any direction makes the weighted sum of squares no smaller."""
    fitted = dataclasses.replace(MODEL, complete=complete(MOVIES, regularisation=regularisation))
    best = recommend.fold_in(fitted, stars)

    def loss(vector: np.ndarray) -> float:
        rows = [fitted.index[movie] for movie in stars]
        missed = np.array(list(stars.values())) - fitted.averages[rows] - fitted.factors[rows] @ vector
        return float(missed @ missed + regularisation * len(stars) * (vector @ vector))

    for step in ([1e-3, 0], [-1e-3, 0], [0, 1e-3], [0, -1e-3]):
        assert loss(best) <= loss(best + np.array(step)) + 1e-12


@pytest.mark.parametrize("count", [1, 2, 3, 4, 50])
def test_as_many_as_were_asked_for_and_the_best_of_them(count: int) -> None:
    """The partial sort gives what a whole sort would."""
    whole = ids(recommend.recommend(MODEL, of(m1=4.0), 100))
    assert ids(recommend.recommend(MODEL, of(m1=4.0), count)) == whole[:count]


def rows(version: int, of_movies: list[MovieFactors], end: Complete | None) -> dict[str, ModelPart]:
    """A version as it is in the topic."""
    parts = [ModelPart(version=version, movie=movie) for movie in of_movies]
    parts += [ModelPart(version=version, complete=end)] if end else []
    return {recommend.part_key(part): part for part in parts}


DAMAGED = movies((1, 3.0, 9, [1.0, 0.5]), *((m.movie_id, m.average, m.viewers, m.factors) for m in MOVIES[1:]))
ENDLESS = movies((1, 3.0, 9, [math.nan, 0.0]))


@pytest.mark.parametrize(
    ("newer", "why"),
    [
        (rows(6, MOVIES, None), None),
        (rows(6, MOVIES[1:], complete(MOVIES)), "has 3 movies and not 4"),
        (rows(6, DAMAGED, complete(MOVIES)), "another checksum"),
        (rows(6, MOVIES, complete(MOVIES, rank=3)), "not of rank 3"),
        (rows(6, ENDLESS, complete(ENDLESS)), "not finite"),
        (rows(6, [], complete([])), "no movies"),
    ],
)
def test_a_version_that_is_not_whole_is_passed_over(newer: dict[str, ModelPart], why: str | None) -> None:
    """The newest whole one is found behind it, and the reason is logged."""
    newest, problems = model.newest({**rows(5, MOVIES, complete(MOVIES)), **newer})
    assert newest is not None
    assert newest.version == 5
    assert len(problems) == (1 if why else 0)
    assert all(why is not None and why in problem for problem in problems)
