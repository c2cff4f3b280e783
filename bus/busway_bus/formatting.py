"""Formats a node's data directory before its first start.

Here: the directory and ids of a node's settings, on the operating system's files.
Not here: the content of `meta.properties` (`log.meta_properties`).
"""

from collections.abc import Mapping
from pathlib import Path

from busway.net.machine import OS
from busway_bus.kernel.config import BrokerConfig
from busway_bus.log.checkpoints import META_PROPERTIES, properties_from_text, uuid_from_text, uuid_text
from busway_bus.log.meta_properties import format_directory
from busway_bus.log.os_files import OsFiles


def random_cluster_id() -> str:
    """Return a new cluster id, 22 characters as Kafka's."""
    while True:
        text = uuid_text(OS.uuid4())
        if not text.startswith("-"):  # as Kafka does: an id is not taken for an option
            return text


def check_cluster_id(text: str) -> str:
    """Return the id, or raise ValueError: it has to be a UUID as `random_cluster_id` makes."""
    try:
        if uuid_text(uuid_from_text(text)) == text:
            return text
    except ValueError:
        pass
    raise ValueError(f"{text} is no cluster id; busway cluster random-uuid prints a new one")


def format_node(config: BrokerConfig, cluster_id: str) -> bool:
    """Format the node's data directory; False if it is formatted for this cluster already.

    Raises:
        WrongDirectory: it belongs to another cluster or node, or has logs and no identity.
        DirectoryInUse: a node runs on it.
        OSError: it cannot be written.
    """
    files = OsFiles(config.data_dir)
    try:
        return format_directory(files, node_id=config.node_id, cluster_id=cluster_id, new_ids=OS.uuid4)
    finally:
        files.close()


def properties_of(config: BrokerConfig) -> Mapping[str, str] | None:
    """Return the properties of the node's data directory, None before it is formatted.

    A node may be running on it.

    Raises:
        OSError: they cannot be read.
    """
    try:
        text = Path(config.data_dir, META_PROPERTIES).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    return properties_from_text(text)
