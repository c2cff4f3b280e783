"""The data directory's `meta.properties`: which cluster and node it belongs to.

Here: reading, checking and writing it, as `kafka-storage` does.
Not here: the logs of the directory (`store`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from busway_bus.kernel.files import Files
from busway_bus.log import checkpoints as cp
from busway_bus.log.directories import partitions_in


class WrongDirectory(RuntimeError):
    """A foreign directory, or a missing one that had records. The text has the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    cluster_id: str
    node_id: int
    directory_id: UUID


def read(files: Files) -> Mapping[str, str] | None:
    """Return the properties of a formatted directory, else None."""
    content = files.read_bytes(cp.META_PROPERTIES)
    return None if content is None else cp.properties_from_text(content.decode(errors="replace"))


def write(files: Files, identity: Identity) -> None:
    files.replace(
        cp.META_PROPERTIES,
        cp.properties_text(
            {
                "version": "1",
                "cluster.id": identity.cluster_id,
                "node.id": str(identity.node_id),
                "directory.id": cp.uuid_text(identity.directory_id),
            }
        ).encode(),
    )


def format_directory(files: Files, *, node_id: int, cluster_id: str, new_ids: Callable[[], UUID]) -> bool:
    """Format an empty directory for a node of a cluster.

    Returns:
        False if it is formatted for them already.

    Raises:
        WrongDirectory: it belongs to another cluster or node, or has logs.
    """
    if read(files) is None:
        check_empty(files, node_id)
        write(files, Identity(cluster_id=cluster_id, node_id=node_id, directory_id=new_ids()))
        return True
    identity, _ = identity_in(files, node_id=node_id, new_ids=new_ids)
    if identity.cluster_id != cluster_id:
        raise WrongDirectory(
            f"the data directory belongs to the cluster {identity.cluster_id}, not to {cluster_id}; choose an empty directory, or give that id"
        )
    return False


def check_empty(files: Files, node_id: int) -> None:
    """Refuse a directory with logs and no identity."""
    if directories := list(partitions_in(files)):
        raise WrongDirectory(
            f"{cp.META_PROPERTIES} is missing from the data directory, but {directories[0]}"
            f"{f' and {len(directories) - 1} others hold' if len(directories) > 1 else ' holds'} data. Restore it from a copy, or "
            f"write it again: the lines version=1, node.id={node_id}, cluster.id= and directory.id= with the ids it had. To "
            f"begin with nothing, choose an empty directory"
        )


def identity_in(files: Files, *, node_id: int, new_ids: Callable[[], UUID]) -> tuple[Identity, bool]:
    """Return the identity, and whether this call completed the formatting.

    An unformatted directory becomes that of a new cluster.

    Raises:
        WrongDirectory: it is another node's, cannot be read, or has logs and no identity.
    """
    properties = read(files)
    if properties is None:
        check_empty(files, node_id)
        identity = Identity(cluster_id=cp.uuid_text(new_ids()), node_id=node_id, directory_id=new_ids())
        write(files, identity)
        return identity, True
    directory_id = properties.get("directory.id") or cp.uuid_text(new_ids())
    try:
        identity = Identity(
            cluster_id=properties["cluster.id"],
            node_id=int(properties["node.id"]),
            directory_id=cp.uuid_from_text(directory_id),
        )
    except (KeyError, ValueError) as problem:
        raise WrongDirectory(f"{cp.META_PROPERTIES} in the data directory cannot be read: {problem}") from None
    if identity.node_id != node_id:
        raise WrongDirectory(
            f"the data directory belongs to node {identity.node_id}, this is node {node_id}; set node.id or log.dirs"
        )
    if not properties.get("directory.id"):
        # A file written by hand may have only what the nodes share; the directory id is generated here.
        text = cp.properties_text({**properties, "directory.id": directory_id})
        files.replace(cp.META_PROPERTIES, text.encode())
        return identity, not list(partitions_in(files))
    return identity, False


def check_formatted(files: Files, new_ids: Callable[[], UUID]) -> None:
    """Check that a node of a cluster has the cluster's id. The nodes share it, so none can generate it.

    Raises:
        WrongDirectory: it is missing.
    """
    if files.read_bytes(cp.META_PROPERTIES) is None:
        raise WrongDirectory(
            f"{cp.META_PROPERTIES} is missing from the data directory. The nodes of a cluster share its id: format each node's directory with "
            f"busway cluster format --config server.properties --cluster-id {cp.uuid_text(new_ids())}"
        )


def not_its_own(directory: str, expected: UUID, actual: UUID | None) -> WrongDirectory:
    """Return the refusal of a partition's directory; `actual` is None if its owner is not known."""
    text = cp.uuid_text(expected)
    whose = (
        f"belongs to the topic id {cp.uuid_text(actual)}, not {text}" if actual else "its owner cannot be determined"
    )
    return WrongDirectory(
        f"{directory} {whose}: its {cp.PARTITION_METADATA} is {'another' if actual else 'missing or damaged'} one. "
        f"Nothing of it is read or removed. If its records are this partition's, let the file say 'version: 0' and, in a "
        f"second line, 'topic_id: {text}'; otherwise move the directory away and restore the right one, or make an empty one "
        f"to accept the loss"
    )
