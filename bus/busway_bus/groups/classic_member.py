"""One member of a classic group.

What lives here: what the coordinator knows of a member. What does not: what becomes of it (`classic`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from busway_bus.groups.records import MemberMetadata
from busway_bus.kernel.limits import MEMBER_BYTES


def protocols_bytes(protocols: Sequence[tuple[str, bytes]]) -> int:
    """What a member's protocols take."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


Waiter = Any
"""Whatever the driver wants back when a parked request is answered; the core never looks into it."""


@dataclass(slots=True, kw_only=True)
class Member:
    """A member; times in ms. `join` and `sync` hold the waiter of a parked request."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    deadline_ms: int
    assignment: bytes = b""
    join: Waiter | None = None
    sync: Waiter | None = None
    counted_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """What it holds."""
        own = len(self.member_id) + len(self.instance_id or "") + len(self.client_id) + len(self.assignment)
        return MEMBER_BYTES + own + protocols_bytes(self.protocols)

    @property
    def parked(self) -> bool:
        """Whether a request of it waits here, which shows that it is alive."""
        return self.join is not None or self.sync is not None

    def touch(self, now: int) -> None:
        """It has shown itself: its session begins anew."""
        self.deadline_ms = now + self.session_timeout_ms

    def metadata(self, protocol: str | None) -> bytes:
        """Its subscription under `protocol`."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def record(self, protocol: str | None) -> MemberMetadata:
        """The member as it is written down."""
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=self.assignment,
        )

    @classmethod
    def restored(cls, found: MemberMetadata, protocol: str | None, now: int) -> "Member":
        """The member that was written down, with one session from now."""
        return cls(
            member_id=found.member_id,
            instance_id=found.group_instance_id,
            client_id=found.client_id,
            client_host=found.client_host,
            session_timeout_ms=found.session_timeout,
            # Version 0 of the record has no rebalance timeout.
            rebalance_timeout_ms=found.session_timeout if found.rebalance_timeout < 0 else found.rebalance_timeout,
            protocols=((protocol or "", found.subscription),),
            deadline_ms=now + found.session_timeout,
            assignment=found.assignment,
        )
