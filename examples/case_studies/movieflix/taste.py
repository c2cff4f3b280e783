"""What a viewer likes: how an event changes it, and what it says in stars.

Here: pure rules, which the Spark job `jobs.train` follows in columns; a test holds the two equal.
Not here: what to recommend for it (`recommend`).
"""

from dataclasses import replace
from typing import Final

from movieflix.domain import check
from movieflix.events import Action, Seen, Taste, Watched

SEEN_MOST: Final = 10_000
"""Movies that are remembered of a viewer: five a week for forty years. The row of one is some 20 bytes."""
WORST_STARS: Final = 1.0
BEST_STARS: Final = 5.0


def apply(taste: Taste, event: Watched, offset: int) -> Taste:
    """The taste after the event at `offset`; the same object if that event is in it already.

    Raises:
        Impossible: the event cannot be true.
    """
    if offset <= taste.last_offset:
        return taste
    check(event)
    before = next((seen for seen in taste.seen if seen.movie_id == event.movie_id), None)
    after = Seen(
        movie_id=event.movie_id,
        share=max(event.position_s / event.length_s, before.share if before else 0.0),
        stopped=event.action is Action.STOPPED or (before is not None and before.stopped),
        rating=event.rating if event.rating is not None else before.rating if before else None,
    )
    others = [seen for seen in taste.seen if seen.movie_id != event.movie_id]
    return replace(taste, seen=[after, *others][:SEEN_MOST], last_offset=offset)


def stars(seen: Seen) -> float | None:
    """What a viewer thinks of a movie, from 1 to 5: the stars they gave; without, the share they watched; None while they have not
    stopped it."""
    if seen.rating is not None:
        return seen.rating
    return WORST_STARS + (BEST_STARS - WORST_STARS) * seen.share if seen.stopped else None


def preferences(taste: Taste) -> dict[int, float]:
    """Stars by movie."""
    return {seen.movie_id: preference for seen in taste.seen if (preference := stars(seen)) is not None}
