"""Requests to a group's coordinator that moves."""

from types import SimpleNamespace
from typing import Any

import pytest

from busway.admin.explanations import ExplanationsAdmin
from busway.cluster.coordinator import ask_coordinator
from busway.net.retry import Backoff
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from busway_protocol.messages.groups_classic import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchResponse,
)


class Cluster:
    """Coordinators that give these responses, one after the other."""

    timeout_s = 30.0

    def __init__(self, *responses: Any) -> None:
        self.responses = list(responses)
        self.asked: list[int] = []

    def backoff(self) -> Backoff:
        return Backoff(lambda: 0.0, 0.0, 0.0)

    async def find_coordinator(self, group_id: str) -> int:
        assert group_id == "g"
        return len(self.asked) + 1

    async def connection(self, node_id: int) -> Any:
        async def request(message: Any, *, at_most: int | None = None) -> Any:
            self.asked.append(node_id)
            return self.responses.pop(0)

        return SimpleNamespace(request=request)


def committed(code: ErrorCode) -> OffsetCommitResponse:
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])])


@pytest.mark.parametrize(
    "refusal",
    [
        OffsetFetchResponse(topics=[], error_code=ErrorCode.NOT_COORDINATOR),
        OffsetFetchResponse(topics=[], error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        committed(ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_a_coordinator_that_moves_is_looked_up_again(refusal: Any) -> None:
    cluster = Cluster(refusal, committed(ErrorCode.NONE))
    assert await ask_coordinator(cluster, "g", None) == committed(ErrorCode.NONE)  # type: ignore[arg-type]
    assert cluster.asked == [1, 2]


async def test_the_reasons_of_rebalances_are_asked_for_again_where_the_coordinator_moved_to() -> None:
    reasons = DescribeConfigsResourceResult(
        name="busway.rebalances", value="[]", read_only=True, is_sensitive=False, synonyms=[]
    )
    moved, known = (
        DescribeConfigsResult(error_code=code, error_message="", resource_type=32, resource_name="g", configs=configs)
        for code, configs in (
            (ErrorCode.NOT_COORDINATOR, []),
            (ErrorCode.NONE, [reasons]),
        )
    )
    admin = ExplanationsAdmin()
    cluster = Cluster(*(DescribeConfigsResponse(results=[result]) for result in (moved, known)))
    admin._cluster = cluster  # type: ignore[assignment]
    assert await admin.explain_group("g") == []
    assert cluster.asked == [1, 2]


async def test_another_error_is_returned_at_once() -> None:
    refused = committed(ErrorCode.UNKNOWN_MEMBER_ID)
    assert await ask_coordinator(Cluster(refused), "g", None) == refused  # type: ignore[arg-type]
