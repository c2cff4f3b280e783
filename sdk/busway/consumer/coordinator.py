"""Requests to a group's coordinator, and leaving the group.

Not here: finding the coordinator (`busway.cluster.coordinator`), the requests (`group`, `heartbeat`, `offsets`).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from busway.cluster.client import ClusterClient, CoordinatorKind
from busway.cluster.coordinator import CoordinatorLink
from busway.errors import BuswayError
from busway.net.clock import REAL_TIME
from busway_protocol.apis import ApiKey
from busway_protocol.messages.groups_classic import LeaveGroupRequest, MemberIdentity

logger: logging.Logger = logging.getLogger("busway.consumer")

LEAVE_S: Final = 3.0
"""Timeout of leaving, seconds. Leaving only saves the group the session timeout."""
_MANY_LEAVE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    group: str
    member_id: str
    generation: int
    instance_id: str | None


class Coordinator(CoordinatorLink):
    def __init__(self, cluster: ClusterClient, group: str, level: int = logging.INFO) -> None:
        super().__init__(cluster, group, CoordinatorKind.GROUP, logger, level)
        self.group = group

    async def ask(
        self,
        message: Any,
        *,
        purpose: str = "group",
        timeout_s: float | None = None,
        at_most: int | None = None,
        when_lost: Callable[[], None] | None = None,
    ) -> Any:
        """Return the response. `purpose` gives long-waiting joins a separate connection."""
        return await super().ask(message, purpose=purpose, timeout_s=timeout_s, at_most=at_most, when_lost=when_lost)

    async def leave(self, member: Member) -> None:
        """Leave the group, so that it need not wait for the session timeout. Static members stay; errors are logged."""
        if not member.member_id or member.instance_id is not None:
            return
        try:
            async with REAL_TIME.timeout(LEAVE_S):
                version = (await self.connection("group")).version(ApiKey.LEAVE_GROUP)
                identity = MemberIdentity(member_id=member.member_id, group_instance_id=None)
                await self.ask(
                    LeaveGroupRequest(group_id=self.group, member_id=member.member_id)
                    if version < _MANY_LEAVE
                    else LeaveGroupRequest(group_id=self.group, members=[identity])
                )
        except (BuswayError, TimeoutError) as problem:
            logger.warning(
                "group %s was not left, its session has to end: %s", self.group, str(problem) or "no answer in time"
            )
