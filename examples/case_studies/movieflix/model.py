"""The topic `movieflix.model`: publishing a version, and finding the newest that is whole.

Here: the order of the records, which is what keeps half a model from being served.
Not here: training (`jobs.train`), scores (`recommend`).

    1763722367001/1 … 1763722367001/100       one record for each movie
    1763722367001/complete                    how many there are, their checksum, how good it is
    1763720000000/1 … /complete               tombstones of every older version

The end is sent when all movies are acknowledged. Older versions go only when the new one was read back and found whole; until then a
service that starts finds them. A trainer that dies in between leaves records without an end: no service serves them, and the next one
takes them away.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from busway import App, Topic
from movieflix import recommend
from movieflix.events import Complete, ModelPart, MovieFactors

TOPIC: Final = "movieflix.model"
IN_FLIGHT: Final = 500
"""Records that wait for their acknowledgement."""


def newest(rows: Mapping[str, ModelPart], *, above: int = -1) -> tuple[recommend.Model | None, list[str]]:
    """The newest whole version of those above a number, and why newer ones are not served.

    Args:
        rows: of the topic, by key; not changed meanwhile.
        above: versions up to it are not looked at.
    """
    ends = sorted(
        (part.version for key, part in rows.items() if part.complete is not None and key == recommend.part_key(part)),
        reverse=True,
    )
    problems: list[str] = []
    for version in ends:
        if version <= above:
            break
        complete = rows[f"{version}/{recommend.COMPLETE}"].complete
        assert complete is not None
        movies = [part.movie for part in rows.values() if part.version == version and part.movie is not None]
        try:
            return recommend.assemble(version, complete, movies), problems
        except recommend.Damaged as problem:
            problems.append(str(problem))
    return None, problems


def declare(app: App) -> Topic[str, ModelPart]:
    """The topic, for publishers; services declare it as a global table."""
    return app.topic(TOPIC, value=ModelPart, partitions=1, configs={"cleanup.policy": "compact"})


async def publish(
    app: App, topic: Topic[str, ModelPart], version: int, complete: Complete, movies: Sequence[MovieFactors]
) -> int:
    """Publish a version and take the older ones away; returns how many records went.

    Args:
        app: running; with an idempotent producer, which keeps the order.
        topic: of `declare`.
        version: above every one before.
        complete, movies: of it; they fit each other, or nothing is sent.

    Raises:
        Damaged: they do not fit, or what is in the topic afterwards is not what was sent.
        BuswayError: a record was not acknowledged.
    """
    recommend.assemble(version, complete, movies)
    await _send(topic, ((f"{version}/{movie.movie_id}", ModelPart(version=version, movie=movie)) for movie in movies))
    await topic.send(ModelPart(version=version, complete=complete), f"{version}/{recommend.COMPLETE}")
    rows = {record.key: record.value async for record in app.read(topic)}
    there = {key: part for key, part in rows.items() if key is not None and part is not None}
    newest_model, problems = newest(there, above=version - 1)
    if newest_model is None:
        raise recommend.Damaged(
            f"model {version} was not found whole after it was sent: {'; '.join(problems) or 'no end'}"
        )
    old = [key for key, part in there.items() if part.version < version]
    await _send(topic, ((key, None) for key in old))
    return len(old)


async def _send(topic: Topic[str, ModelPart], records: Iterable[tuple[str, ModelPart | None]]) -> None:
    waiting: list[asyncio.Future[Any]] = []
    for key, value in records:
        waiting.append(await topic.send_soon(value, key))
        if len(waiting) == IN_FLIGHT:
            await asyncio.gather(*waiting)
            waiting.clear()
    await asyncio.gather(*waiting)
