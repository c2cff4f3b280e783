"""Whether operations on one thing can be put in an order that explains all answers (Wing and Gong's search, with Lowe's memory).

Here: the search.
Not here: what the things are (`group_checks`, `topic_checks`).
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

ATTEMPTS_MAX = 200_000
"""Orders looked at before the search gives up undecided; histories of one key are short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operation as the model sees it.

    Attributes:
        invoked, returned: it takes effect between these places in the order of all events.
        certain: it did take effect; one that is not may have, or never.
        apply: the state after it, `IMPOSSIBLE` where its answer does not fit the state.
    """

    invoked: int
    returned: int
    certain: bool
    apply: Callable[[Any], Any]
    text: str = ""


IMPOSSIBLE = object()


class Undecided(Exception):
    """The search took too long."""


def unexplained(steps: Sequence[Step], initial: Hashable) -> Step | None:
    """None where an order explains everything, else the step that no order got past.

    Raises:
        Undecided: there are too many orders.
    """
    steps = sorted(steps, key=lambda step: step.invoked)
    certain = sum(1 << number for number, step in enumerate(steps) if step.certain)
    seen: set[tuple[int, Hashable]] = set()
    furthest, blocked = -1, None
    stack: list[tuple[int, int, Hashable]] = [(0, 0, initial)]  # done, the latest invocation among them, state
    while stack:
        done, latest, state = stack.pop()
        if done & certain == certain:
            return None
        if (done, state) in seen:
            continue
        seen.add((done, state))
        if len(seen) > ATTEMPTS_MAX:
            raise Undecided
        left = [(number, step) for number, step in enumerate(steps) if not done >> number & 1]
        bound, first = min((step.returned, number) for number, step in left if step.certain)
        count = (done & certain).bit_count()
        if count > furthest:
            furthest, blocked = count, steps[first]
        for number, step in reversed(left):
            if step.invoked >= bound or max(latest, step.invoked) >= step.returned:
                continue
            after = step.apply(state)
            if after is not IMPOSSIBLE:
                stack.append((done | 1 << number, max(latest, step.invoked), after))
    return blocked
