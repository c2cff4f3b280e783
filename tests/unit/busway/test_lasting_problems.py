"""What ends a consumer's membership is raised by each later call."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import busway
from busway.errors import BrokerError
from busway_protocol.errors import ErrorCode


@pytest.mark.parametrize("share", [False, True])
async def test_a_problem_that_stays_keeps_a_short_traceback(share: bool) -> None:
    """Who calls again and again would hold the frames of all calls."""
    problem = BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group g")
    consumer: Any = busway.ShareConsumer("t", group_id="g") if share else busway.Consumer("t", group_id="g")
    consumer._tasks = [asyncio.current_task()]
    if share:
        consumer._member.problem = problem
    else:
        consumer._group = SimpleNamespace(problem=problem)
        consumer._touch = lambda: None
    depths = []
    for _ in range(3):
        with pytest.raises(BrokerError) as raised:
            consumer._check()
        depths.append(len(raised.traceback))
    assert depths == depths[:1] * 3
