"""The rules: how an event changes a profile.

Here: pure functions.
Not here: topics, HTTP, time.
"""

from dataclasses import replace
from typing import Final

from movieflix.events import Action, Profile, Resume, Watched

FINISHED_AT: Final = 0.95
"""Who has seen so much of a movie has seen it; the rest is credits."""
LOVED_FROM: Final = 4.0
RESUME_MOST: Final = 20
LOVED_MOST: Final = 20


class Impossible(ValueError):
    """An event that no viewer can have caused; names the field."""


def check(event: Watched) -> None:
    """Whether the event can be true.

    Raises:
        Impossible: it cannot.
    """
    if event.length_s <= 0:
        raise Impossible(f"length_s is {event.length_s}; a movie is longer than nothing")
    if not 0 <= event.position_s <= event.length_s:
        raise Impossible(f"position_s is {event.position_s}, outside the movie of {event.length_s} s")
    if event.played_s < 0:
        raise Impossible(f"played_s is {event.played_s}; nobody plays less than nothing")
    if event.rating is not None and not 1 <= event.rating <= 5:
        raise Impossible(f"rating is {event.rating}; stars go from 1 to 5")


def apply(profile: Profile, event: Watched, offset: int) -> Profile:
    """The profile after the event at `offset`; the same object if that event is in it already.

    Raises:
        Impossible: the event cannot be true.
    """
    if offset <= profile.last_offset:
        return profile
    check(event)
    finished = event.position_s >= FINISHED_AT * event.length_s
    others = [position for position in profile.resume if position.movie_id != event.movie_id]
    here = Resume(
        movie_id=event.movie_id,
        position_s=event.position_s,
        length_s=event.length_s,
        device=event.device,
        at=event.at,
    )
    loved = profile.loved
    if event.rating is not None:
        loved = [movie_id for movie_id in loved if movie_id != event.movie_id]
        if event.rating >= LOVED_FROM:
            loved = [event.movie_id, *loved][:LOVED_MOST]
    return replace(
        profile,
        events=profile.events + 1,
        started=profile.started + (event.action is Action.STARTED),
        finished=profile.finished + (finished and event.action is Action.STOPPED),
        watched_s=profile.watched_s + event.played_s,
        ratings=profile.ratings + (event.rating is not None),
        rating_sum=profile.rating_sum + (event.rating or 0.0),
        loved=loved,
        resume=others if finished else [here, *others][:RESUME_MOST],
        last_offset=offset,
    )
