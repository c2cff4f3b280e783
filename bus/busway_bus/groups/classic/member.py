"""One member of a classic group.

Here: its state.
Not here: the effects of requests (`group`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from busway_bus.groups.records import MemberMetadata
from busway_bus.groups.requests import Join
from busway_bus.kernel.decision import Waiter
from busway_bus.kernel.fair_share import NOBODY
from busway_bus.kernel.limits import MEMBER_BYTES


def protocols_bytes(protocols: Sequence[tuple[str, bytes]]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


@dataclass(slots=True, kw_only=True)
class Member:
    """A member. Times in ms; `join` and `sync` are waiters of pending requests.

    Attributes:
        client_host: shown to users; a static member keeps its first one, as in Kafka.
        host: of its last join; its quota is charged.
        from_log: known from its record, without a join here.
        counted: charged host and bytes.
    """

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
    host: str = NOBODY
    from_log: bool = False
    counted: tuple[str, int] = (NOBODY, 0)

    @property
    def size_bytes(self) -> int:
        own = len(self.member_id) + len(self.instance_id or "") + len(self.client_id) + len(self.assignment)
        return MEMBER_BYTES + own + protocols_bytes(self.protocols)

    @property
    def parked(self) -> bool:
        return self.join is not None or self.sync is not None

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def record(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    @classmethod
    def joining(cls, member_id: str, request: Join, now: int) -> "Member":
        return cls(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            deadline_ms=now + request.session_timeout_ms,
            host=request.client_host,
        )

    def succeeded(self, newcomer: "Member") -> "Member":
        """Return the newcomer with the fields of its static predecessor."""
        return replace(newcomer, client_id=self.client_id, client_host=self.client_host, assignment=self.assignment)

    @classmethod
    def restored(cls, written: MemberMetadata, protocol: str | None, now: int) -> "Member":
        return cls(
            member_id=written.member_id,
            instance_id=written.group_instance_id,
            client_id=written.client_id,
            client_host=written.client_host,
            session_timeout_ms=written.session_timeout,
            # Version 0 of the record has no rebalance timeout.
            rebalance_timeout_ms=written.session_timeout
            if written.rebalance_timeout < 0
            else written.rebalance_timeout,
            protocols=((protocol or "", written.subscription),),
            deadline_ms=now + written.session_timeout,
            assignment=written.assignment,
            host=written.client_host,
            from_log=True,
        )


def listing(members: Iterable[Member], protocol: str | None) -> tuple[tuple[str, str | None, bytes], ...]:
    return tuple((member.member_id, member.instance_id, member.metadata(protocol)) for member in members)
