"""Three nodes of both roles on real sockets: one cluster."""

from pathlib import Path

import pytest
from tests.integration.nodes import Nodes
from tests.support.waiting import until

from busway_protocol.errors import ErrorCode
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

pytestmark = pytest.mark.slow


def creation(name: str, *, replicas: int = 1) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=3, replication_factor=replicas, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic])


async def test_topics_are_created_at_any_node_and_known_to_all(tmp_path: Path) -> None:
    """A node that does not lead forwards; all follow the same metadata."""
    async with Nodes(tmp_path) as nodes:
        assert nodes.leader_id in nodes.ids
        images = [node.services.images for node in nodes.running.values()]
        await until(lambda: all(len(list(images[0].image.usable_brokers())) == 3 for _ in images))
        for node_id in nodes.ids:
            answer: CreateTopicsResponse = await nodes.asked(node_id, creation(f"t{node_id}"))
            (row,) = answer.topics
            assert (row.name, row.error_code, row.num_partitions) == (f"t{node_id}", ErrorCode.NONE, 3)
            (row,) = (await nodes.asked(node_id, creation(f"t{node_id}"))).topics
            assert row.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        await until(lambda: all(set(published.image.topics) == {"t1", "t2", "t3"} for published in images))
        assert images[0].image == images[1].image == images[2].image
