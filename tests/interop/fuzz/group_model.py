"""A model of one group: its classic members and generations, and its members of the consumer protocol and their epochs.

Here: what must hold for each answer that is no error, and for the group after all calls.
Not here: offsets, which `transaction_model` follows for both fuzzers.
"""

from typing import Any

from busway_protocol.messages.groups_classic import (
    DeleteGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from busway_protocol.messages.groups_modern import ConsumerGroupHeartbeatRequest
from tests.interop.fuzz.ending import Ending

LEAVES = (-1, -2)
"""Member epochs that say goodbye: for good, and of a static member for a while."""


class GroupModel:
    """See the module. Members are known by their ids; a classic one has the generation it was last given, a modern one its epoch."""

    def __init__(self) -> None:
        self._classic: dict[str, int] = {}
        self._modern: dict[str, int] = {}
        self._instances: dict[str, str] = {}
        """By instance id, the member that has it."""

    def saw(self, request: Any, version: int, answer: Any) -> None:
        """Judge an answer, and follow it.

        Raises:
            AssertionError: A call was taken that must be refused, or a generation or epoch goes back; says which.
        """
        match request:
            case JoinGroupRequest() if not answer.error_code:
                self._joined(request, answer)
            case SyncGroupRequest() | HeartbeatRequest() if not answer.error_code:
                self._member(request.member_id, request.generation_id, type(request).__name__)
            case OffsetCommitRequest() if any(
                not each.error_code for topic in answer.topics for each in topic.partitions
            ):
                if request.generation_id_or_member_epoch >= 0:
                    self._member(request.member_id, request.generation_id_or_member_epoch, "OffsetCommit")
                else:
                    assert not self._classic, "a commit without a generation is taken while the group has some"
                    assert not self._modern, "a commit without a generation is taken while the group has some"
            case LeaveGroupRequest() if not answer.error_code:
                self._left(request, version, answer)
            case DeleteGroupsRequest() if not answer.results[0].error_code:
                assert not self._classic, "a group with members is deleted"
                assert not self._modern, "a group with members is deleted"
            case ConsumerGroupHeartbeatRequest() if not answer.error_code:
                self._beat(request, answer)

    def against(self, ending: Ending) -> list[str]:
        """What is not as it must be after all calls."""
        problems = []
        classic, modern = ending["classic group"], ending["consumer group"]
        if modern["error"] == "NONE":
            expected = len(self._classic) + len(self._modern)
            if len(modern["members"]) != expected:
                problems.append(f"the consumer group has {expected} members")
            epochs = {member: epoch for member, _, epoch, *_ in modern["members"] if member in self._modern}
            problems += [
                f"the epoch of {member} is {epoch}"
                for member, epoch in self._modern.items()
                if epochs.get(member) not in {epoch, None}
            ]
        elif classic["error"] == "NONE" and len(classic["members"]) != len(self._classic):
            problems.append(f"the classic group has {len(self._classic)} members")
        return problems

    def _member(self, member_id: str, epoch: int, what: str) -> None:
        known = self._classic.get(member_id, self._modern.get(member_id))
        assert known is not None, f"{what} of a member that the group does not have is taken"
        assert epoch <= known, f"{what} of a generation or epoch that is not there yet is taken"

    def _joined(self, request: Any, answer: Any) -> None:
        before = self._classic.get(request.member_id, -1)
        assert answer.generation_id >= before, "the generation goes back"
        self._classic[answer.member_id] = answer.generation_id
        self._modern.pop(answer.member_id, None)
        self._took(request.group_instance_id, answer.member_id)

    def _took(self, instance_id: str | None, member_id: str) -> None:
        if instance_id is None:
            return
        former = self._instances.get(instance_id, member_id)
        if former != member_id:
            self._classic.pop(former, None)
            self._modern.pop(former, None)
        self._instances[instance_id] = member_id

    def _left(self, request: Any, version: int, answer: Any) -> None:
        if version < 3:
            self._gone(request.member_id)
            return
        for asked, each in zip(request.members, answer.members, strict=True):
            if not each.error_code:
                self._gone(asked.member_id or self._instances.get(asked.group_instance_id or "", ""))

    def _gone(self, member_id: str) -> None:
        self._classic.pop(member_id, None)
        self._modern.pop(member_id, None)
        self._instances = {name: member for name, member in self._instances.items() if member != member_id}

    def _beat(self, request: Any, answer: Any) -> None:
        member_id, epoch = answer.member_id or request.member_id, request.member_epoch
        if epoch in LEAVES:
            assert member_id in self._modern or member_id in self._classic, "a member that is not there leaves"
            assert answer.member_epoch == epoch, "a goodbye is answered with its epoch"
            if epoch == LEAVES[0]:
                self._gone(member_id)
            else:
                self._classic.pop(member_id, None)
                self._modern[member_id] = epoch
            return
        before = self._modern.get(member_id)
        if epoch > 0:
            self._member(member_id, epoch, "ConsumerGroupHeartbeat")
        assert before is None or answer.member_epoch >= before, "the member epoch goes back"
        self._took(request.instance_id, member_id)
        self._classic.pop(member_id, None)
        self._modern[member_id] = answer.member_epoch
