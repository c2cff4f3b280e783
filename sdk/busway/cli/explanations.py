"""`busway groups explain`: the reasons of rebalances as text.

Here: the lines.
Not here: the command (`groups`), the request (`busway.admin.explanations`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from busway.admin.explanations import Rebalance, RebalanceReason
from busway.cli.output import harmless

_UNASSIGNED = "unassigned"


def explanation(group: str, rebalances: Sequence[Rebalance]) -> str:
    if not rebalances:
        return f"{group}: no rebalance since its coordinator started"
    return harmless("\n".join(line for rebalance in rebalances for line in _lines(rebalance)))


def as_rows(rebalances: Sequence[Rebalance]) -> list[dict[str, object]]:
    return [asdict(rebalance) for rebalance in rebalances]


def _lines(rebalance: Rebalance) -> Iterator[str]:
    at = datetime.fromtimestamp(rebalance.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    epoch = (
        ("generation" if rebalance.kind == "classic" else "epoch") + f" {rebalance.epoch}"
        if rebalance.epoch >= 0
        else "under way"
    )
    took = "" if rebalance.took_ms is None else f", took {rebalance.took_ms} ms"
    yield f"{at}  {rebalance.kind} group, {epoch}, {rebalance.members} member{'s' * (rebalance.members != 1)}{took}"
    yield from (f"    {_reason(reason)}" for reason in rebalance.reasons)
    if rebalance.reasons_left_out:
        yield f"    and {rebalance.reasons_left_out} more"
    for move in rebalance.moves:
        yield f"    {move.topic}-{move.partition}: {move.before or _UNASSIGNED} -> {move.after or _UNASSIGNED}"
    if not rebalance.moves_complete:
        yield "    further moved partitions are not stored"


def _reason(reason: RebalanceReason) -> str:
    named = (
        f"client {reason.client_id}" * bool(reason.client_id),
        reason.host.lstrip("/"),
        f"instance {reason.instance_id}" * bool(reason.instance_id),
    )
    about = ", ".join(name for name in named if name)
    members = (
        f"{reason.member_id} ({about}) "
        if reason.member_id and about
        else f"{reason.member_id} " * bool(reason.member_id)
    )
    return f"{members}{reason.what}" + (f": {reason.reason}" if reason.reason else "")
