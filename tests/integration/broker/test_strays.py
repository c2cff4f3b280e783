"""A start deletes nothing but what a committed deletion names, whatever became of the files that say whose a directory is."""

import hashlib
import logging
import shutil
from pathlib import Path

import pytest

from busway_bus.handlers.common.topic_creation import create_topic
from busway_bus.log.meta_properties import WrongDirectory
from busway_bus.log.partition_log import CorruptLog
from busway_bus.node import Node
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.builder import BatchBuilder

META = "__cluster_metadata-0"
LOG = f"{0:020d}.log"


async def append(node: Node, topic: str, number: int = 0) -> None:
    """One acknowledged record."""
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, b"key", b"value of " + topic.encode())
    replicas = node.services.replicas
    _, done = replicas.append(replicas.find(topic, number), builder.build())
    await done


def records(folder: Path) -> dict[str, str]:
    """Every log file that holds records, by the hash of its content."""
    return {
        hashlib.sha256(path.read_bytes()).hexdigest(): path.parent.name
        for path in folder.glob(f"*/{LOG}")
        if path.stat().st_size and path.parent.name != META
    }


@pytest.fixture
async def stopped(tmp_path):
    """A data directory with records in p-0 and q-0, stopped in order."""
    cluster = LocalCluster(str(tmp_path))
    async with cluster:
        for topic in "pq":
            await create_topic(cluster.node.services, topic, partitions=1, replication_factor=1)
            await append(cluster.node, topic)
    return cluster


def change_id(folder: Path) -> None:
    path = folder / "p-0" / "partition.metadata"
    path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAZQ")


def empty_id(folder: Path) -> None:
    (folder / "p-0" / "partition.metadata").write_text("")


def lose_id(folder: Path) -> None:
    (folder / "p-0" / "partition.metadata").unlink()


def spoil_id(folder: Path) -> None:
    path = folder / "p-0" / "partition.metadata"
    path.write_text(path.read_text().replace("topic_id: ", "topic_id: !"))


@pytest.mark.parametrize("damage", [change_id, empty_id, lose_id, spoil_id])
async def test_a_partition_whose_id_is_wrong_is_offline_and_whole(stopped, damage, caplog):
    """It was deleted, and an empty one made in its place, without a line. The other partition is served."""
    folder = Path(stopped.data_dir)
    before = records(folder)
    damage(folder)
    async with stopped:
        with pytest.raises(KafkaError) as refused:
            stopped.node.services.replicas.find("p", 0)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await append(stopped.node, "q")
    assert "partition p-0 is offline" in caplog.text
    assert "topic_id: " in caplog.text
    assert before.items() >= {(digest, name) for digest, name in records(folder).items() if name == "p-0"}
    assert "p-0" in records(folder).values()


def lose_metadata(folder: Path) -> None:
    shutil.rmtree(folder / META)


def lose_metadata_and_checkpoints(folder: Path) -> None:
    shutil.rmtree(folder / META)
    for path in folder.glob("*checkpoint"):
        path.unlink()


def empty_metadata(folder: Path) -> None:
    lose_metadata_and_checkpoints(folder)
    (folder / META).mkdir()


def flip_a_bit(folder: Path) -> None:
    path = folder / META / LOG
    content = bytearray(path.read_bytes())
    content[content.index(b"\x02p") + 1] ^= 1
    path.write_bytes(content)


def lose_properties(folder: Path) -> None:
    (folder / "meta.properties").unlink()


def another_directory(folder: Path) -> None:
    path = folder / "meta.properties"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("directory.id")]
    path.write_text("\n".join([*lines, "directory.id=AAAAAAAAAAAAAAAAAAAAZQ", ""]))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lose_metadata, "restore __cluster_metadata-0 from a copy|Restore the directory from a copy"),
        (lose_metadata_and_checkpoints, "no metadata log in the data directory, but p-0 and 1 others hold records"),
        (empty_metadata, "no metadata log in the data directory"),
        (flip_a_bit, "__cluster_metadata-0.* is damaged .* offset .*restore __cluster_metadata-0 from a copy"),
        (lose_properties, "meta.properties is missing"),
        (another_directory, "set directory.id=.* in meta.properties"),
    ],
)
async def test_a_directory_that_cannot_be_trusted_is_refused_and_left_whole(stopped, damage, words):
    """Every topic was deleted, or renamed, or the cluster got another id, without a line; now nothing starts, twice over."""
    folder = Path(stopped.data_dir)
    damage(folder)
    before = records(folder)
    assert set(before.values()) == {"p-0", "q-0"}
    for _ in range(2):
        with pytest.raises((WrongDirectory, CorruptLog), match=words):
            await stopped.start()
        assert records(folder) == before


async def test_what_no_topic_claims_is_set_aside_and_told(stopped, tmp_path, caplog):
    """A directory copied in from elsewhere is renamed as Kafka does, kept whole, and named at every start."""
    folder = Path(stopped.data_dir)
    shutil.copytree(folder / "p-0", folder / "other-0")
    async with stopped:
        await append(stopped.node, "p")
    (stray,) = folder.glob("other-0.*-stray")
    assert (stray / LOG).stat().st_size > 0
    assert f"kept as {stray.name}" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        async with stopped:
            pass
    assert stray.name in caplog.text


async def test_a_deletion_that_a_crash_cut_off_is_finished(stopped, caplog):
    """The removal is committed and the directory is still there under either name: it goes, and nothing else does."""
    folder = Path(stopped.data_dir)
    shutil.copytree(folder / "p-0", folder / "copy")
    async with stopped:
        await stopped.node.services.metadata.run(lambda image: delete_topic(image, "p"))
    assert not (folder / "p-0").exists()
    (folder / "copy").rename(folder / "p-0")
    caplog.clear()
    async with stopped:
        await append(stopped.node, "q")
    assert not list(folder.glob("p-0*"))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def delete_topic(image, name):
    from busway_bus.controller.topics import delete

    return delete(image, name)


async def test_a_directory_that_is_gone_is_not_made_anew_in_silence(stopped, caplog):
    """Offline, with what to do; an empty directory is the word to begin again."""
    folder = Path(stopped.data_dir)
    shutil.rmtree(folder / "p-0")
    async with stopped:
        with pytest.raises(KafkaError, match="offline"):
            stopped.node.services.replicas.find("p", 0)
    assert "its directory p-0 is gone, but it had records up to offset 1" in caplog.text
    (folder / "p-0").mkdir()
    async with stopped:
        assert stopped.node.services.replicas.find("p", 0).log.end_offset == 0
