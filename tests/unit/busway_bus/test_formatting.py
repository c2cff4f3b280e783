"""Formatting of data directories: cluster ids, and what a directory is formatted for."""

from pathlib import Path

import pytest

from busway_bus.formatting import check_cluster_id, format_node, properties_of, random_cluster_id
from busway_bus.kernel.config import BrokerConfig
from busway_bus.log.meta_properties import WrongDirectory
from busway_bus.log.os_files import DirectoryInUse, OsFiles


def config_of(folder: Path, node_id: int = 1) -> BrokerConfig:
    return BrokerConfig.from_properties({"node.id": str(node_id), "log.dirs": str(folder)})


def test_random_ids_are_cluster_ids() -> None:
    """Each is new, is accepted, and no option of a command."""
    drawn = {random_cluster_id() for _ in range(300)}
    assert len(drawn) == 300
    assert all(check_cluster_id(text) == text and not text.startswith("-") for text in drawn)


@pytest.mark.parametrize(
    "text", ["", "shop", "yl0NOCuGQruVR5ZTZwPwsg==", "yl0NOCuGQruVR5ZTZwPwsga", "yl0NOCuGQruVR5ZTZwPws!"]
)
def test_other_texts_are_refused(text: str) -> None:
    """The error names the command that prints an id."""
    with pytest.raises(ValueError, match="busway cluster random-uuid prints a new one"):
        check_cluster_id(text)


def test_a_directory_keeps_its_identity(tmp_path: Path) -> None:
    """A second formatting changes nothing; another cluster or node is refused."""
    config = config_of(tmp_path / "data")
    assert properties_of(config) is None
    first, other = random_cluster_id(), random_cluster_id()
    assert format_node(config, first)
    properties = properties_of(config)
    assert not format_node(config, first)
    with pytest.raises(WrongDirectory, match=f"belongs to the cluster {first}, not to {other}"):
        format_node(config, other)
    with pytest.raises(WrongDirectory, match="belongs to node 1, this is node 2"):
        format_node(config_of(tmp_path / "data", node_id=2), first)
    assert properties_of(config) == properties


def test_a_directory_in_use_is_not_formatted(tmp_path: Path) -> None:
    """Its properties can be read."""
    config = config_of(tmp_path / "data")
    cluster_id = random_cluster_id()
    format_node(config, cluster_id)
    files = OsFiles(str(tmp_path / "data"))
    try:
        with pytest.raises(DirectoryInUse):
            format_node(config, cluster_id)
        assert (properties_of(config) or {})["cluster.id"] == cluster_id
    finally:
        files.close()
