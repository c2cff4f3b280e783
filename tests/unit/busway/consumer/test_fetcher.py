"""Partitions of a broker that did not respond, and the look-up that they wait for."""

import asyncio
from typing import Any

import pytest

from busway.cluster.metadata import ClusterMetadata
from busway.consumer.fetcher import Fetcher
from busway.errors import ConnectionFailed
from busway.options import ConsumerOptions


class Cluster:
    """A cluster whose metadata cannot be had."""

    metadata = ClusterMetadata()

    def __init__(self, problem: Exception) -> None:
        self.problem = problem

    async def refresh(self) -> None:
        raise self.problem


async def committed(_: Any) -> dict[Any, int]:
    return {}


@pytest.mark.parametrize("problem", [ConnectionFailed("refused"), RuntimeError("a mistake of this client")])
async def test_a_failed_look_up_ends_the_wait_for_it(problem: Exception) -> None:
    """Whatever it failed by: nothing else would end the wait."""
    fetcher = Fetcher(Cluster(problem), ConsumerOptions(), committed)  # type: ignore[arg-type]
    fetcher._unreachable.add(1)
    fetcher._look_up()
    assert fetcher._refreshing is not None
    await asyncio.wait([fetcher._refreshing])
    fetcher._refreshing.exception()  # retrieved: asyncio logs it otherwise
    assert fetcher._unreachable == set()
    assert fetcher._wake.is_set()
