"""The target assignment of a consumer group, at once or in steps.

Here: when it is due, and a large group's plan.
Not here: the computation (`balance`), reconciliation (`reconcile`).
"""

from collections.abc import Iterable, Mapping

from busway_bus.groups.group import Group
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.modern.assignors import ASSIGNORS
from busway_bus.groups.modern.balance import Matches, Plan, assigning, is_small
from busway_bus.groups.modern.consumer_member import ConsumerMember
from busway_bus.groups.modern.consumer_state import ConsumerView, target_record
from busway_bus.groups.modern.group import NO_PARTITIONS, Assignment
from busway_bus.groups.modern.records import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from busway_bus.groups.modern.requests import ConsumerLimits
from busway_bus.groups.modern.topics import Topics
from busway_bus.groups.records import Change
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.steps import finished


class ConsumerTarget(ConsumerView):
    def __init__(self, group_id: str, memory: GroupMemory, limits: ConsumerLimits, topics: Topics) -> None:
        super().__init__(group_id, memory, limits.of_group)
        self._limits = limits
        self._topics = topics
        self._planned = False

    def preferred_assignor(self, members: Iterable[ConsumerMember]) -> str:
        votes: dict[str, int] = {}
        for member in members:
            if member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        served = [name for name in sorted(votes) if name in ASSIGNORS]
        return max(served, key=lambda name: votes[name]) if served else self._limits.assignors[0]

    def _matches(self) -> Matches:
        return {regex: resolved.topics for regex, resolved in self.resolved.items()}

    def _is_due(self, epoch: int, now: int) -> bool:
        waits = is_within(self.settings.assignment_interval_ms, self.target_timestamp_ms, now)
        return self.target_epoch < epoch and not (self.target_timestamp_ms and waits)

    def _next_target(
        self, updated: ConsumerMember, epoch: int, now: int, records: list[Change]
    ) -> tuple[int, Assignment, bool]:
        """Return the target assignment's epoch and the member's part.

        It is computed if the epoch was raised and the assignment interval is over; for a large group the third value is
        True instead: plan it.
        """
        replaced = self.static_member(updated.instance_id)
        before = updated if replaced is None else replaced
        has = self.target_epoch, self.target.get(before.member_id, NO_PARTITIONS)
        if self._planned or not self._is_due(epoch, now):
            return *has, False
        left = (member for member_id, member in self.members.items() if member_id != before.member_id)
        if not is_small((updated, *left), self._matches(), self._topics, self._limits.assigned_at_once):
            return *has, True
        members = {**self.members, updated.member_id: updated}
        if before.member_id != updated.member_id:
            members.pop(before.member_id, None)
        had = {**self.target, updated.member_id: has[1]}
        assignor = self.preferred_assignor(members.values())
        targets = finished(assigning(assignor, members, had, self._matches(), self._topics))
        records += self._target_records(targets)
        records.append(self._target_epoch_record(epoch, now))
        return epoch, targets.get(updated.member_id, NO_PARTITIONS), False

    def _target_records(self, targets: Mapping[str, Assignment]) -> list[Change]:
        return [
            target_record(self.group_id, member_id, target)
            for member_id, target in targets.items()
            if self.target.get(member_id) != target
        ]

    def _target_epoch_record(self, epoch: int, now: int) -> Change:
        key = ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id)
        return key, ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now)

    # Large groups

    def plan(self, now: int) -> Plan | None:
        """Start a plan for a due target assignment; `unplanned` ends it."""
        if self._planned or not self.members or not self._is_due(self.epoch, now):
            return None
        self._planned = True
        members, had = dict(self.members), dict(self.target)
        assignor = self.preferred_assignor(members.values())
        return Plan(
            group=self,
            epoch=self.epoch,
            steps=assigning(assignor, members, had, self._matches(), self._topics),
            instances={
                member_id: member.instance_id for member_id, member in members.items() if member.instance_id is not None
            },
        )

    def unplanned(self) -> None:
        """Drop the plan; a later heartbeat may start another."""
        self._planned = False

    def planned(self, plan: Plan, part: Mapping[str, Assignment], now: int, *, last: bool) -> Decision[bool]:
        """Store a part of a plan; False if it is obsolete.

        The last part puts it in force. A static member's successor gets its part.
        """
        if self.over or not self.members or self.target_epoch >= plan.epoch:
            return Decision(reply=False)
        targets: dict[str, Assignment] = {}
        for member_id, target in part.items():
            heir = self.static.get(plan.instances.get(member_id, ""), "")
            here = member_id if member_id in self.members else heir
            if here in self.members:
                targets[here] = target
        records = self._target_records(targets)
        if last:
            records.append(self._target_epoch_record(plan.epoch, now))
        return Decision(records=tuple(records), reply=True)


def is_within(wait_ms: int, since_ms: int, now: int) -> bool:
    """Whether less than `wait_ms` has passed. False after the clock was set back."""
    return since_ms <= now < since_ms + wait_ms


def plan_of(groups: Mapping[str, Group], group_id: str, now: int) -> Plan | None:
    group = groups.get(group_id)
    return group.plan(now) if isinstance(group, ConsumerTarget) else None


def write_part(
    groups: Mapping[str, Group], plan: Plan, part: Mapping[str, Assignment], now: int, *, last: bool
) -> Decision[bool]:
    group = plan.group
    if not isinstance(group, ConsumerTarget) or groups.get(group.group_id) is not group:
        return Decision(reply=False)
    return group.planned(plan, part, now, last=last)
