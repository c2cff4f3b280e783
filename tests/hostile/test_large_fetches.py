"""A fetch that asks for all that there is of very many partitions: its answer has a limit, and the next ones bring the rest."""

import socket
from typing import Any, Final

from busway_protocol.compile import decode
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from busway_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from busway_protocol.records.batch import iter_batches
from tests.hostile.test_one_peer import MIB, answer, batch, peers
from tests.hostile.test_share_groups import put
from tests.support.busway_process import BuswayProcess
from tests.support.canary import Canary
from tests.support.raw_client import frame

INT_MAX: Final = 2**31 - 1
FETCH_MIB: Final = 55
"""Kafka's default of fetch.max.bytes."""
PARTITIONS: Final = 2_000
EVERY: Final = 100
"""One partition of so many has records."""
BATCHES: Final = 6
"""Of a megabyte, in each of those."""
FULL: Final = range(0, PARTITIONS, EVERY)


def filled(peer: socket.socket) -> None:
    """A topic with some large partitions among many empty ones, twice of what an answer may have and more."""
    loose = [CreatableTopicConfig(name="durability", value="os")]
    wanted = CreatableTopic(name="all", num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=loose)
    made = put(peer, CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), 5)
    assert made.topics[0].error_code == 0
    records = batch(1_000, 1_000)
    for number in FULL:
        data = [TopicProduceData(name="all", partition_data=[PartitionProduceData(index=number, records=records)])]
        peer.sendall(frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), 9) * BATCHES)
        for _ in range(BATCHES):
            response = decode(ProduceResponse, 9, answer(peer), 5)
            assert response.responses[0].partition_responses[0].error_code == 0


def everything(offsets: dict[int, int], session: int, epoch: int) -> FetchRequest:
    """All of these partitions, as much as there is."""
    partitions = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=INT_MAX)
        for number, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=INT_MAX,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic="all", partitions=partitions)] if partitions else [],
    )


def test_all_of_very_many_partitions_comes_in_parts(hostile_broker: BuswayProcess, canary: Canary) -> None:
    """Thousands of partitions with INT_MAX for each and for all: no answer has more than fetch.max.bytes, each brings something new, and all
    comes, with a session and without one."""
    with peers(hostile_broker, 1) as (peer,):
        filled(peer)
        for with_session in (False, True):
            offsets = dict.fromkeys(range(PARTITIONS), 0)
            changed, session, epoch = dict(offsets), 0, 0 if with_session else -1
            sizes: list[int] = []
            while not sizes or sizes[-1]:
                peer.sendall(frame(everything(changed if with_session else offsets, session, epoch), 11))
                response: Any = decode(FetchResponse, 11, answer(peer), 4)
                assert response.error_code == 0
                size, changed = 0, {}
                for partition in response.responses[0].partitions if response.responses else []:
                    assert partition.error_code == 0
                    size += len(partition.records or b"")
                    for header, _ in iter_batches(partition.records or b""):
                        assert header.base_offset == offsets[partition.partition_index]
                        offsets[partition.partition_index] = changed[partition.partition_index] = header.next_offset
                assert bool(size) == bool(changed), "what comes is a batch at least"
                assert size <= FETCH_MIB * MIB
                sizes.append(size)
                if with_session:
                    session, epoch = response.session_id, epoch + 1
                    assert session
            assert {number: offset for number, offset in offsets.items() if offset} == dict.fromkeys(
                FULL, BATCHES * 1_000
            )
            assert sizes[0] > (FETCH_MIB - 1) * MIB
            assert len(sizes) <= 5, sizes
        gone = put(
            peer, DeleteTopicsRequest(topic_names=["all"], timeout_ms=60_000), 5
        )  # a broker that stops flushes all it has
        assert gone.responses[0].error_code == 0
