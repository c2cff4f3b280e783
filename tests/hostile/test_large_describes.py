"""Describing much again and again takes neither the memory of the broker nor its loop from others."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from busway_protocol.apis import api, response_header_version
from busway_protocol.compile import decode
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.hostile.test_one_peer import MIB, answer, peers
from tests.support.busway_process import BuswayProcess
from tests.support.canary import Canary
from tests.support.raw_client import frame, key_of

GROUPS = [f"described-{number}" for number in range(40)]


@contextmanager
def members_with_a_megabyte(broker: BuswayProcess) -> Iterator[None]:
    """Forty groups, of one member each, with an assignment of a mebibyte, from four hosts, each with its share; gone afterwards."""
    with ExitStack() as stack:
        hosts = [stack.enter_context(peers(broker, 1, source=f"127.0.0.{20 + number}"))[0] for number in range(4)]

        def ask(message: object, version: int, number: int = 0) -> object:
            peer = hosts[number % len(hosts)]
            peer.sendall(frame(message, version))
            key = key_of(message)
            return decode(api(key).response, version, answer(peer), 4 + response_header_version(key, version))

        ask(FindCoordinatorRequest(key="described"), 2)
        members = {}
        for number, group in enumerate(GROUPS):
            joined = ask(
                JoinGroupRequest(
                    group_id=group,
                    session_timeout_ms=60_000,
                    rebalance_timeout_ms=60_000,
                    member_id="",
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
                ),
                3,
                number,
            )
            assert joined.error_code == ErrorCode.NONE  # type: ignore[attr-defined]
            members[group] = joined.member_id  # type: ignore[attr-defined]
            given = SyncGroupRequestAssignment(member_id=members[group], assignment=bytes(MIB))
            request = SyncGroupRequest(group_id=group, generation_id=1, member_id=members[group], assignments=[given])
            synced = ask(request, 3, number)
            assert synced.error_code == ErrorCode.NONE  # type: ignore[attr-defined]
        yield
        for group, member in members.items():
            ask(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)]), 3)


def test_forty_megabytes_of_groups_are_described_to_thirty_at_once(
    hostile_broker: BuswayProcess, canary: Canary
) -> None:
    """Each asks for all groups a hundred times over, and reads nothing until all have asked."""
    question = frame(DescribeGroupsRequest(groups=GROUPS * 100), 4)
    with members_with_a_megabyte(hostile_broker), peers(hostile_broker, 30) as many:
        for peer in many:
            peer.sendall(question)
        sizes = []
        for peer in many:
            try:
                sizes.append(len(answer(peer, within_s=60.0)))
            except (AssertionError, ConnectionError):
                sizes.append(0)  # it had taken nothing while others needed the memory
        assert max(sizes) > 20 * MIB
        assert max(sizes) <= 33 * MIB
