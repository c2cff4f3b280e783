"""One member of a classic group.

What lives here: what the coordinator knows of a member. What does not: what becomes of it (`classic`).
"""

from dataclasses import dataclass
from typing import Any

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

    @property
    def parked(self) -> bool:
        """Whether a request of it waits here, which shows that it is alive."""
        return self.join is not None or self.sync is not None

    def metadata(self, protocol: str | None) -> bytes:
        """Its subscription under `protocol`."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")
