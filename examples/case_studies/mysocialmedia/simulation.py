"""MySocialMedia under simulation: `busway simulate mysocialmedia.simulation:simulation` from the folder above.

Here: users who like and comment the same few posts, and what totals must be.
Not here: the rules (`domain`), a day as it is (`generate`).
"""

import asyncio
import datetime as dt
from typing import Final

from busway.testing import SimulatedBus, Simulation
from mysocialmedia import service
from mysocialmedia.events import Activity, Kind
from mysocialmedia.generate import Tally

POSTS: Final = 4
USERS: Final = 3
ACTIVITIES: Final = 25
"""Of each post."""
PAUSE_S: Final = 2.0
_OFTEN: Final = (Kind.LIKED, Kind.LIKED, Kind.UNLIKED, Kind.COMMENTED, Kind.COMMENT_DELETED)

simulation = Simulation(service.app, environment={"MYSOCIALMEDIA_INSTANCE": "{instance}"})


@simulation.workload
async def users(bus: SimulatedBus) -> None:
    """All posts at once."""
    bus.state.tally = Tally()
    await asyncio.gather(*(_around(bus, f"p{number}") for number in range(POSTS)))


async def _around(bus: SimulatedBus, post_id: str) -> None:
    """A post and all that happens to it, often the same again; some are deleted at the end."""
    kinds = [Kind.POSTED, *(bus.chance.choice(_OFTEN) for _ in range(ACTIVITIES))]
    if bus.chance.random() < 0.2:
        kinds.append(Kind.DELETED)
    for kind in kinds:
        activity = Activity(
            kind=kind,
            post_id=post_id,
            user_id="author" if kind in {Kind.POSTED, Kind.DELETED} else f"u{bus.chance.randrange(USERS)}",
            at=dt.datetime.now(dt.UTC),
            comment_id=f"c{bus.chance.randrange(2)}",
            text="text",
        )
        await bus.send(service.activities, activity, key=post_id)
        bus.state.tally.note(activity)
        await bus.sleep(bus.chance.uniform(0, PAUSE_S))


@simulation.outcome
async def totals_are_exact(bus: SimulatedBus) -> None:
    """Likes and comments of each post are those of its users, counted once, and so are the marks that they were counted by."""
    posts = {post.post_id: post for post in (await bus.rows(service.posts)).values() if not post.deleted}
    totals = {post_id: (post.likes, post.comments) for post_id, post in posts.items()}
    assert totals == bus.state.tally.totals, f"totals are {totals}, and must be {bus.state.tally.totals}"
    marked = {post_id: [0, 0] for post_id in posts}
    for key in await bus.rows(service.marks):
        post_id, *rest = key.split("/")
        assert post_id in marked, f"{key} is left of a post that is gone"
        marked[post_id][len(rest) - 1] += 1
    assert {post_id: (likes, comments) for post_id, (likes, comments) in marked.items()} == totals


@simulation.outcome
async def nothing_is_put_aside(bus: SimulatedBus) -> None:
    """No activity of these is impossible."""
    letters = await bus.dead_letters(service.activities)
    assert not letters, letters[0].error
