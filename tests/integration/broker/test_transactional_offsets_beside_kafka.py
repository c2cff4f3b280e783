"""What transactions leave in `__consumer_offsets` is what Apache Kafka leaves there, as its own tool reads it."""

import asyncio
import re
from pathlib import Path

import pytest
from tests.integration.broker.groups_probe import DEADLINE_S, run_against
from tests.integration.broker.transactional_offsets_scenarios import (
    deleted_within_transactions,
    offsets_within_transactions,
)
from tests.support.apache_kafka import ApacheKafka, java

from busway_bus.testing.local_cluster import LocalCluster

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
CHANCE = re.compile(
    r'(Dumping|CreateTime:|crc:|producerId:|position:|size:|valueSize:) \S+|,"(commitTimestamp|currentStateTimestamp|topicId)":[^,}]+'
)
"""What differs between any two runs; and the id of the topic, with the bytes that it takes, which Kafka writes without transactions only."""
SEQUENCE = re.compile(r"(baseSequence|lastSequence|sequence): -?\d+")
"""Kafka numbers records outside of transactions too, which no producer has."""
PARTITION = re.compile(r'"partition":\d')
"""Tombstones of a group come in the order of a hash map there."""


def dumped(data_dir: str | Path) -> list[str]:
    """The batches and records of the partition."""
    file = Path(data_dir) / "__consumer_offsets-0" / "00000000000000000000.log"
    options = ("--offsets-decoder", "--deep-iteration", "--files", str(file))
    lines = java("org.apache.kafka.tools.DumpLogSegments", *options).splitlines()
    plain, transactional = [CHANCE.sub("", line) for line in lines], False
    for at, line in enumerate(plain):
        transactional = "isTransactional: true" in line if line.startswith("baseOffset") else transactional
        if not transactional:
            plain[at] = SEQUENCE.sub("", line)
        if "<DELETE>" in line:
            plain[at] = PARTITION.sub("", plain[at])
    return plain


@pytest.mark.java
@pytest.mark.slow
async def test_the_file_is_kafkas(tmp_path: Path) -> None:
    """Batch by batch: producers, epochs, sequences, markers, keys and values; with tombstones of what was pending."""

    async def scenarios(bootstrap_servers: str) -> None:
        async with asyncio.timeout(2 * DEADLINE_S), run_against(bootstrap_servers) as run:
            await offsets_within_transactions(run)
            await deleted_within_transactions(run)

    async with LocalCluster(str(tmp_path), properties=SETTINGS, prompt=False) as cluster:
        await scenarios(cluster.bootstrap_servers)
    with ApacheKafka(SETTINGS) as kafka:
        await scenarios(kafka.bootstrap_servers)
        theirs = await asyncio.to_thread(dumped, kafka.data_dir)
    ours = dumped(tmp_path)
    assert sum("endTxnMarker: COMMIT" in line for line in ours) == 4
    assert ours == theirs
