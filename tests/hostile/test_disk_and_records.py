"""What one request may not do with the disk and with what is inside a batch: keep the loop from others.

Each test does one hostile deed to the broker of `test_one_peer`; the canary beside it measures, and fails it.
"""

import resource
import socket

from busway_protocol.compile import decode
from busway_protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from busway_protocol.messages.produce import ProduceResponse
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from busway_protocol.records.builder import BatchBuilder
from tests.hostile.conftest import SETTINGS
from tests.hostile.test_one_peer import answer, ask, create, peers, produce
from tests.support.busway_process import BuswayProcess
from tests.support.canary import Canary

PARTITIONS = 1_000
DESCRIPTORS = 1_024
"""The soft limit of most machines."""


def topic(name: str, partitions: int) -> CreatableTopic:
    """A topic of so many partitions."""
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])


def test_a_thousand_partitions_come_and_go_beside_others(hostile_broker: BuswayProcess, canary: Canary) -> None:
    """One request makes them, one deletes them."""
    made = ask(hostile_broker, CreateTopicsRequest(topics=[topic("wide", PARTITIONS)]), 5)
    assert made.topics[0].error_code == 0, made.topics[0].error_message
    gone = ask(hostile_broker, DeleteTopicsRequest(topic_names=["wide"], timeout_ms=60_000), 5)
    assert gone.responses[0].error_code == 0, gone.responses[0].error_message


def many_records(count: int) -> bytes:
    """A batch of so many small records with keys, a few bytes of zstd each."""
    builder = BatchBuilder("zstd")
    for number in range(count):
        builder.append(1_700_000_000_000 + number, b"k%d" % (number % 1_000), b"")
    return builder.build()


def stored(peer: socket.socket, name: str, records: bytes) -> int:
    """The answer's code for one batch."""
    peer.sendall(produce(name, records))
    response = decode(ProduceResponse, 9, answer(peer, within_s=60), 5)
    return int(response.responses[0].partition_responses[0].error_code)


def test_a_batch_of_very_many_records_is_looked_into_beside_others(
    hostile_broker: BuswayProcess, canary: Canary
) -> None:
    """A compacted topic opens what comes: 200,000 records in one batch, taken or refused, stall no other client."""
    create(hostile_broker, "compacted", cleanup_policy="compact")
    with peers(hostile_broker, 1) as (peer,):
        stored(peer, "compacted", many_records(200_000))


def test_a_look_up_by_time_in_such_a_batch_stalls_nobody(hostile_broker: BuswayProcess, canary: Canary) -> None:
    """The last of 200,000 timestamps in one batch."""
    create(hostile_broker, "timed")
    with peers(hostile_broker, 1) as (peer,):
        taken = stored(peer, "timed", many_records(200_000)) == 0
    wanted = ListOffsetsPartition(partition_index=0, timestamp=1_700_000_000_000 + 199_999)
    response = ask(
        hostile_broker,
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="timed", partitions=[wanted])]),
        6,
    )
    assert response.topics[0].partitions[0].error_code == 0
    assert response.topics[0].partitions[0].offset == (199_999 if taken else -1)


def test_what_is_created_is_there_where_descriptors_are_few() -> None:
    """At a soft limit of 1,024: each partition that was created answers, or its creation was refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    broker = BuswayProcess(SETTINGS)
    try:
        broker.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        for number in range(4):
            made = ask(broker, CreateTopicsRequest(topics=[topic(f"t-{number}", 100)]), 5)
            if made.topics[0].error_code != 0:
                continue
            wanted = [ListOffsetsPartition(partition_index=at, timestamp=-1) for at in range(100)]
            response = ask(
                broker,
                ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=f"t-{number}", partitions=wanted)]),
                6,
            )
            assert {each.error_code for each in response.topics[0].partitions} == {0}
    finally:
        broker.stop()
