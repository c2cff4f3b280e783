"""Share sessions: incremental lists of partitions per member (KIP-932).

Here: sessions, epochs and bounds, as plain state.
Not here: a member's records (`state`), dropped connections (`manager`). A full broker refuses new sessions and evicts
none.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from busway_bus.kernel.limits import SHARE_SESSION_PARTITIONS_MAX
from busway_protocol.errors import ErrorCode, KafkaError

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
_EPOCH_MAX: Final = 2**31 - 1

TopicIdPartition = tuple[UUID, int]


@dataclass(slots=True, eq=False)
class ShareSession:
    """The partitions of one member on this broker.

    Attributes:
        epoch: of its next request.
        partitions: in order of service; whether the next response must include each.
    """

    group_id: str
    member_id: str
    partitions: dict[TopicIdPartition, bool]
    epoch: int = 1

    def gave(self, partition: TopicIdPartition) -> None:
        """Move a partition that returned records to the end."""
        if partition in self.partitions:
            self.partitions[partition] = self.partitions.pop(partition)


class ShareSessions:
    """A node's sessions: at most `slots`, with `partitions_max` partitions together."""

    def __init__(self, slots: int, partitions_max: int = SHARE_SESSION_PARTITIONS_MAX) -> None:
        self._slots = slots
        self._partitions_max = partitions_max
        self._partitions = 0
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._members: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def members(self, group_id: str) -> int:
        return self._members.get(group_id, 0)

    def find(self, group_id: str, member_id: str) -> ShareSession:
        """Return the session of a member, or raise SHARE_SESSION_NOT_FOUND."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def open(self, group_id: str, member_id: str, partitions: Iterable[TopicIdPartition]) -> ShareSession:
        """Open a session in place of the member's earlier one.

        SHARE_SESSION_LIMIT_REACHED keeps the earlier session.
        """
        session = ShareSession(group_id, member_id, dict.fromkeys(partitions, False))
        earlier = self._sessions.get((group_id, member_id))
        slots, held = len(self), self._partitions + len(session.partitions)
        if earlier is not None:
            slots, held = slots - 1, held - len(earlier.partitions)
        if slots >= self._slots or held > self._partitions_max:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        if earlier is not None:
            self.close(earlier)
        self._sessions[group_id, member_id] = session
        self._members[group_id] = self.members(group_id) + 1
        self._partitions += len(session.partitions)
        return session

    def resume(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        partitions: Iterable[TopicIdPartition] = (),
        forget: Iterable[TopicIdPartition] = (),
    ) -> ShareSession:
        """Update and return the session of a request.

        Raises:
            KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH; SHARE_SESSION_LIMIT_REACHED, and the
                session is unchanged.
        """
        session = self.find(group_id, member_id)
        if session.epoch != epoch:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"the session is at epoch {session.epoch}, not {epoch}"
            )
        changed = dict(session.partitions)
        for partition in partitions:
            changed.setdefault(partition, True)
        for partition in forget:
            changed.pop(partition, None)
        more = len(changed) - len(session.partitions)
        if more > 0 and self._partitions + more > self._partitions_max:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self._partitions += more
        session.partitions = changed
        session.epoch = next_epoch(epoch)
        return session

    def close(self, session: ShareSession) -> bool:
        key = (session.group_id, session.member_id)
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        self._partitions -= len(session.partitions)
        left = self._members.pop(session.group_id) - 1
        if left:
            self._members[session.group_id] = left
        return True


def next_epoch(epoch: int) -> int:
    return 1 if epoch == _EPOCH_MAX else epoch + 1
