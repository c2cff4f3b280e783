"""Checks of a join to a classic group.

Here: every refusal, in Kafka's order.
Not here: an admitted join (`group`).
"""

from busway_bus.groups.classic.member import protocols_bytes
from busway_bus.groups.classic.members import Roster
from busway_bus.groups.classic.states import State
from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.requests import Join
from busway_bus.kernel.limits import MEMBER_BYTES, PENDING_GROUP_MEMBERS_MAX
from busway_protocol.errors import ErrorCode


def refusal(
    request: Join, *, state: State, roster: Roster, protocol_type: str | None, limits: GroupLimits
) -> ErrorCode | None:
    """Return why this join is refused; None if it is not.

    INVALID_SESSION_TIMEOUT, COORDINATOR_NOT_AVAILABLE (deleted meanwhile), GROUP_MAX_SIZE_REACHED,
    INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """
    if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not _has_room(request, state, roster, limits) or not _has_memory(request, roster):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    same_type = not roster.members or protocol_type == request.protocol_type
    if not request.protocol_type or not same_type or not roster.speak(request.protocols):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.member_id == "":
        return None
    if request.member_id in roster.pending:
        return None if request.instance_id is None else ErrorCode.UNKNOWN_MEMBER_ID
    code = roster.identity_error(request.member_id, request.instance_id)
    return None if code is ErrorCode.NONE else code


def _has_room(request: Join, state: State, roster: Roster, limits: GroupLimits) -> bool:
    """Check the group's size.

    During a rebalance only pending joins count: a group that is too large loses the last to join.
    """
    if state is State.EMPTY:
        return request.member_id in roster.pending or len(roster.pending) < PENDING_GROUP_MEMBERS_MAX
    member = roster.members.get(request.member_id)
    if state is State.PREPARING:
        return (member is not None and member.join is not None) or roster.joining < limits.max_size
    return member is not None or len(roster) < limits.max_size


def _has_memory(request: Join, roster: Roster) -> bool:
    member = roster.members.get(request.member_id)
    more = protocols_bytes(request.protocols)
    if member is not None:
        more -= protocols_bytes(member.protocols)
    else:
        more += MEMBER_BYTES + len(request.client_id) + 2 * len(request.instance_id or "")
    return roster.has_room(request.client_host, more)
