"""`busway groups explain`: the reasons of rebalances as text.

What lives here: the lines. What does not: the command (`groups`), the request (`busway.admin.explanations`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from busway.admin.explanations import Rebalance, RebalanceReason
from busway.cli.output import harmless

_NOBODY = "nobody"


def told(group: str, rebalances: Sequence[Rebalance]) -> str:
    """Format all rebalances, oldest first."""
    if not rebalances:
        return f"{group}: no rebalance since its coordinator started"
    return harmless("\n".join(line for one in rebalances for line in _lines(one)))


def as_rows(rebalances: Sequence[Rebalance]) -> list[dict[str, object]]:
    """Return them as JSON objects."""
    return [asdict(one) for one in rebalances]


def _lines(one: Rebalance) -> Iterator[str]:
    at = datetime.fromtimestamp(one.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    epoch = ("generation" if one.kind == "classic" else "epoch") + f" {one.epoch}" if one.epoch >= 0 else "under way"
    took = "" if one.took_ms is None else f", took {one.took_ms} ms"
    yield f"{at}  {one.kind} group, {epoch}, {one.members} member{'s' * (one.members != 1)}{took}"
    yield from (f"    {_reason(reason)}" for reason in one.reasons)
    if one.reasons_left_out:
        yield f"    and {one.reasons_left_out} more"
    for move in one.moves:
        yield f"    {move.topic}-{move.partition}: {move.before or _NOBODY} -> {move.after or _NOBODY}"
    if not one.moves_complete:
        yield "    more partitions have moved than are kept"


def _reason(one: RebalanceReason) -> str:
    named = (
        f"client {one.client_id}" * bool(one.client_id),
        one.host.lstrip("/"),
        f"instance {one.instance_id}" * bool(one.instance_id),
    )
    about = ", ".join(name for name in named if name)
    who = f"{one.member_id} ({about}) " if one.member_id and about else f"{one.member_id} " * bool(one.member_id)
    return f"{who}{one.what}" + (f": {one.reason}" if one.reason else "")
