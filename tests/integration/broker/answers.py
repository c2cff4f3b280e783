"""Answers of two brokers to the same scenario, compared.

Here: running a scenario against Busway and Apache Kafka, and the text of what differs.
Not here: the scenarios, and what of an answer is left out because no two runs have it alike (`groups_probe`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from tests.integration.broker.groups_probe import DEADLINE_S, Run
from tests.support.apache_kafka import ApacheKafka

from busway_bus.testing.local_cluster import LocalCluster

R = TypeVar("R", bound=Run)


async def assert_same_answers(
    scenario: Callable[[R], Awaitable[None]],
    run_against: Callable[[str], AbstractAsyncContextManager[R]],
    kafka: ApacheKafka,
    settings: Mapping[str, str],
) -> None:
    """Field by field, in order.

    Args:
        settings: of Busway's broker; Kafka's has them already.
    """
    logs: list[Any] = []
    async with LocalCluster(properties=settings, prompt=False) as cluster:
        for bootstrap in (cluster.bootstrap_servers, kafka.bootstrap_servers):
            async with asyncio.timeout(2 * DEADLINE_S), run_against(bootstrap) as run:
                await scenario(run)
                logs.append(run.outcome())
    ours, theirs = logs
    assert ours
    assert [label for label, _ in ours] == [label for label, _ in theirs]
    differences = [
        f"{label}\n   ours: {our}\n kafka: {their}"
        for (label, our), (_, their) in zip(ours, theirs, strict=True)
        if our != their
    ]
    assert not differences, "\n".join(differences)
