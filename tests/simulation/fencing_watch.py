"""Members that the broker fences because their connections were closed (`group.disconnect.grace.ms`), and whether they live.

Here: noting each in the history, with whether its process lives and nothing but a short cut kept it from sending
heartbeats.
Not here: the check (`modern_checks`).
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from busway_bus.coordinator import fencing, member_connections
from busway_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

FENCED: Final = "fenced"
FENCED_ALIVE: Final = "live member fenced"
_SHORT_CUT_MS: Final = 1_500
"""A member whose connections are cut for no longer has sent a heartbeat again before the grace of 3 s is over."""
_AFTERMATH_MS: Final = 10_000
"""For so long after a fault of another kind a member may be silent because of it."""


@contextlib.contextmanager
def watched_fencing(scenario: "Scenario") -> Iterator[None]:
    """Note every member that is fenced in the scenario's history.

    All cuts are resets here. They are waited for as ordinary ends are, since most sessions end before `RECONNECT_MS`.
    """
    usual, usual_ms = fencing.leave_in_parts, member_connections.RECONNECT_MS

    async def leave(runtime: Any, group_id: str, identities: Sequence[Any], *more: Any) -> list[ErrorCode]:
        (member_id, _) = identities[0]
        live = _lives(scenario, member_id) and not _disturbed(scenario)
        codes = await usual(runtime, group_id, identities, *more)
        if codes == [ErrorCode.NONE]:
            scenario.note(FENCED_ALIVE if live else FENCED, f"{member_id} of {group_id}")
        return codes

    fencing.leave_in_parts = leave  # type: ignore[assignment]
    member_connections.RECONNECT_MS = 0  # type: ignore[misc]
    try:
        yield
    finally:
        fencing.leave_in_parts = usual
        member_connections.RECONNECT_MS = usual_ms  # type: ignore[misc]


def _lives(scenario: "Scenario", member_id: str) -> bool:
    """Whether a client that takes part has that member id, in a process that is not dead."""
    return any(
        not process.dead and membership().member_id == member_id
        for client in scenario.clients
        if client.member is not None
        for process, membership in [client.member]
    )


def _disturbed(scenario: "Scenario") -> bool:
    """Whether anything but a short cut is going wrong, or has done so a moment ago."""
    now_ms = scenario.faults.elapsed_ms
    return any(
        fault.at_ms <= now_ms <= fault.at_ms + fault.for_ms + _AFTERMATH_MS
        for fault in scenario.plan.faults
        if fault.kind != "cut" or fault.for_ms > _SHORT_CUT_MS
    )
