"""The last rebalances of each group, as JSON in memory.

Here: a node's bounded history, lost with the process or a move of the coordinator.
Not here: observing (`explained`), showing (`handlers.describe_configs`, the CLI).
"""

import json
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable
from typing import Any, Final

from busway_bus.kernel.limits import (
    EXPLAINED_BYTES_MAX,
    EXPLAINED_GROUP_BYTES_MAX,
    EXPLAINED_MOVES_MAX,
    EXPLAINED_REASONS_MAX,
    EXPLAINED_REBALANCES_MAX,
    EXPLAINED_TEXT_MAX,
)

TopicPartition = tuple[str, int]
_LINE_BYTES: Final = 200
"""Memory of an entry without its text."""


class History:
    def __init__(self, wall_ms: Callable[[], int], limit: int = EXPLAINED_BYTES_MAX) -> None:
        self.wall_ms = wall_ms
        self._limit = limit
        self._groups: OrderedDict[str, deque[str]] = OrderedDict()
        self._held: dict[str, int] = {}
        self.used = 0

    def add(self, group_id: str, entry: dict[str, Any]) -> None:
        """Add an entry.

        First this group's oldest entries are evicted, then the longest quiet groups.
        """
        text = json.dumps(entry, ensure_ascii=True, separators=(",", ":"))
        entries = self._groups.setdefault(group_id, deque())
        self._groups.move_to_end(group_id)
        entries.append(text)
        self._count(group_id, len(text) + _LINE_BYTES + (len(group_id) if len(entries) == 1 else 0))
        while len(entries) > EXPLAINED_REBALANCES_MAX or (
            len(entries) > 1 and self._held[group_id] > EXPLAINED_GROUP_BYTES_MAX
        ):
            self._count(group_id, -len(entries.popleft()) - _LINE_BYTES)
        while self.used > self._limit:
            oldest, _ = self._groups.popitem(last=False)
            self.used -= self._held.pop(oldest)

    def _count(self, group_id: str, by: int) -> None:
        self._held[group_id] = self._held.get(group_id, 0) + by
        self.used += by

    def knows(self, group_id: str) -> bool:
        return group_id in self._groups

    def text(self, group_id: str, under_way: Iterable[dict[str, Any]] = ()) -> str:
        """Return a JSON array, oldest first; `under_way` is appended."""
        last = (json.dumps(entry, separators=(",", ":")) for entry in under_way)
        return f"[{','.join((*self._groups.get(group_id, ()), *last))}]"


class Gathering:
    """The gathered changes of a current rebalance.

    Attributes:
        began_ms: monotonic.
        had: a classic group's encoded assignments by member id; None if not collected or too large.
        lost, gained: partitions, with the members that lose or gain them.
        uncounted: further ones were dropped.
    """

    def __init__(self, began_ms: int, wall_ms: int) -> None:
        self.began_ms, self.wall_ms = began_ms, wall_ms
        self.reasons: list[dict[str, Any]] = []
        self.reasons_left_out = 0
        self.had: dict[str, bytes] | None = None
        self.lost: dict[TopicPartition, str] = {}
        self.gained: dict[TopicPartition, str] = {}
        self.uncounted = False

    def note(
        self,
        what: str,
        member_id: str,
        reason: str | None = None,
        *,
        client_id: str = "",
        host: str = "",
        instance: str | None = None,
    ) -> None:
        if len(self.reasons) >= EXPLAINED_REASONS_MAX:
            self.reasons_left_out += 1
            return
        event = {
            "what": what,
            "member": member_id,
            "client": client_id,
            "host": host,
            "instance": instance,
            "reason": reason,
        }
        self.reasons.append({name: value[:EXPLAINED_TEXT_MAX] for name, value in event.items() if value})

    def forget(self, what: Container[str], member_ids: Iterable[str]) -> None:
        ids = {member_id[:EXPLAINED_TEXT_MAX] for member_id in member_ids}
        self.reasons = [event for event in self.reasons if event["what"] not in what or event.get("member") not in ids]

    def lose(self, partition: TopicPartition, member_id: str) -> None:
        self._put(self.lost, partition, member_id)

    def gain(self, partition: TopicPartition, member_id: str) -> None:
        self._put(self.gained, partition, member_id)

    def _put(self, table: dict[TopicPartition, str], partition: TopicPartition, member_id: str) -> None:
        if len(table) >= EXPLAINED_MOVES_MAX and partition not in table:
            self.uncounted = True
        else:
            table[partition] = member_id[:EXPLAINED_TEXT_MAX]

    def entry(self, kind: str, epoch: int, members: int, took_ms: int | None) -> dict[str, Any]:
        partitions = sorted({*self.lost, *self.gained})
        moves = [(partition, self.lost.get(partition), self.gained.get(partition)) for partition in partitions]
        return {
            "at_ms": self.wall_ms,
            "kind": kind,
            "epoch": epoch,
            "members": members,
            "took_ms": took_ms,
            "reasons": self.reasons,
            "reasons_left_out": self.reasons_left_out,
            "moves": [
                {"topic": partition[0], "partition": partition[1], "from": before, "to": after}
                for partition, before, after in moves[:EXPLAINED_MOVES_MAX]
                if before != after
            ],
            "moves_complete": not self.uncounted and len(moves) <= EXPLAINED_MOVES_MAX,
        }
