"""The rules, without IO."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from movieflix import domain
from movieflix.events import Action, Profile, Watched

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def event(**changes: object) -> Watched:
    """A viewer half way through movie 7."""
    given = {
        "user_id": 1, "movie_id": 7, "action": Action.PLAYING, "position_s": 3000, "length_s": 6000, "played_s": 100,
        "device": "tv", "at": AT, **changes,
    }  # fmt: skip
    return Watched(**given)  # type: ignore[arg-type]


def test_the_newest_position_is_the_one_to_resume_at_on_any_device() -> None:
    """A later event on another device replaces the earlier one."""
    profile = domain.apply(Profile(user_id=1), event(), 0)
    profile = domain.apply(profile, event(position_s=3500, device="phone"), 1)
    assert [(position.movie_id, position.position_s, position.device) for position in profile.resume] == [
        (7, 3500, "phone")
    ]


def test_a_finished_movie_is_nothing_to_resume() -> None:
    """From 95 % on it has been seen, and counts once, when the viewer stops."""
    profile = domain.apply(Profile(user_id=1), event(), 0)
    profile = domain.apply(profile, event(position_s=5700), 1)
    profile = domain.apply(profile, event(position_s=5900, action=Action.STOPPED, rating=5.0), 2)
    assert (profile.resume, profile.finished, profile.loved) == ([], 1, [7])


def test_a_lower_rating_later_ends_love() -> None:
    """What was loved and is rated low now is not loved any more."""
    profile = domain.apply(Profile(user_id=1), event(rating=4.0), 0)
    assert domain.apply(profile, event(rating=2.0), 1).loved == []


def test_the_list_to_resume_has_an_end() -> None:
    """Of very many unfinished movies the newest stay."""
    profile = Profile(user_id=1)
    for offset in range(50):
        profile = domain.apply(profile, event(movie_id=offset), offset)
    assert [position.movie_id for position in profile.resume] == list(range(49, 29, -1))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"length_s": 0}, "length_s"),
        ({"position_s": -1}, "position_s"),
        ({"position_s": 6001}, "position_s"),
        ({"played_s": -5}, "played_s"),
        ({"rating": 6.0}, "rating"),
    ],
)
def test_impossible_events_are_refused_by_name(changes: dict[str, object], named: str) -> None:
    """The refusal names the field, and the profile stays as it was."""
    profile = Profile(user_id=1)
    with pytest.raises(domain.Impossible, match=named):
        domain.apply(profile, event(**changes), 0)
    assert profile == Profile(user_id=1)


@given(st.lists(st.integers(0, 5), max_size=30))
def test_events_that_come_again_change_nothing(repeats: list[int]) -> None:
    """However often the newest events are delivered again, the profile is that of delivering each once."""
    once = twice = Profile(user_id=1)
    history: list[tuple[int, Watched]] = []
    for offset, back in enumerate(repeats):
        seen = event(movie_id=back, position_s=offset)
        history.append((offset, seen))
        once = domain.apply(once, seen, offset)
        for known, again in history[-1 - back :]:
            twice = domain.apply(twice, again, known)
    assert once == twice
