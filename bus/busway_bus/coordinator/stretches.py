"""Commits of very many offsets, a stretch at a time.

What lives here: how many go at once, and what those are told that come behind one which is refused. What does not: writing them (`groups`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from busway_bus.groups.offsets import NewOffset, Place
from busway_bus.kernel.limits import OFFSETS_PER_COMMIT_MAX
from busway_protocol.errors import ErrorCode, KafkaError


async def in_stretches(
    offsets: Mapping[Place, NewOffset], write: Callable[[Mapping[Place, NewOffset]], Awaitable[dict[Place, ErrorCode]]]
) -> dict[Place, ErrorCode]:
    """Write offsets, so many at a time that others are served in between; a code for each. Each stretch is judged as a commit by itself:
    what was written before one that is refused stays.

    Raises:
        KafkaError: the first stretch is refused.
    """
    if len(offsets) <= OFFSETS_PER_COMMIT_MAX:
        return await write(offsets)
    codes: dict[Place, ErrorCode] = {}
    places = tuple(offsets)
    for start in range(0, len(places), OFFSETS_PER_COMMIT_MAX):
        part = {place: offsets[place] for place in places[start : start + OFFSETS_PER_COMMIT_MAX]}
        try:
            codes.update(await write(part))
        except KafkaError as problem:
            if not codes:
                raise
            codes.update(dict.fromkeys(part, problem.code))
        await asyncio.sleep(0)
    return codes
