"""Checks of a data directory for `busway doctor`: access, space, file system, identity.

Here: folders of `busway up`, and log directories of a broker, Apache Kafka's too.
Not here: the content of logs, which a broker checks at its start.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from busway.cli.findings import Finding, ok, problem, warning

_META: Final = "meta.properties"
_PARTITION: Final = re.compile(r".+-\d+")
_FREE_SHARE_MIN: Final = 0.05
_FREE_BYTES_MIN: Final = 1024**3
"""Less than both, this and the share, is a warning: segments have up to 1 GiB."""
_FULL_BYTES: Final = 16 * 1024**2
"""Less is a problem."""
_FILES_FREE_MIN: Final = 1000
_ENTRIES_MAX: Final = 100_000
"""Checked files and folders."""
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_ON_NETWORK: Final = ("nfs", "cifs", "smb", "fuse.sshfs", "9p")
_SQLITE: Final = b"SQLite format 3\0"
_MOUNTS: Final = Path("/proc/self/mounts")


def check_data(folder: Path, cluster_id: str | None, *, given: bool) -> list[Finding]:
    """Check a data directory, with the log directory and the registry's database in it.

    Args:
        cluster_id: of the reached brokers.
        given: the user named the folder. A default one need not exist, nor be that of these brokers.
    """
    subject = f"data directory {folder}"
    if not folder.exists():
        text = "it does not exist; --data FOLDER names another one, and the first start of a broker makes it"
        return [problem(subject, text)] if given else []
    if not folder.is_dir():
        return [problem(subject, "it is a file; move it away, or give another folder as --data")]
    if (denied := _denied(folder)) is not None:
        return [problem(subject, denied)]
    findings = [*_check_space(subject, folder), *_check_file_system(subject, folder)]
    logs = folder / "broker" if (folder / "broker").is_dir() else folder
    findings += _check_identity(subject, logs, cluster_id if given else None)
    findings += _check_database(subject, folder / "registry.db")
    return findings or [ok(subject, "readable and writable, with space, and of one cluster")]


def _denied(folder: Path) -> str | None:
    """Name the first entry that this user may not read and write; None without one."""
    for checked, path in enumerate(_entries(folder)):
        if checked >= _ENTRIES_MAX:
            return None
        rights = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() and not path.is_symlink() else 0)
        if path.exists() and not os.access(path, rights):
            owner = path.stat().st_uid
            return (
                f"{path} cannot be read and written by this user (uid {os.getuid()}), it is of uid {owner}; run as that "
                f"user, or `chown -R` it"
            )
    return None


def _entries(folder: Path) -> Iterator[Path]:
    yield folder
    for base, folders, files in os.walk(folder):
        yield from (Path(base, name) for name in (*folders, *files))


def _check_space(subject: str, folder: Path) -> list[Finding]:
    facts = os.statvfs(folder)
    if facts.f_flag & os.ST_RDONLY:
        return [problem(subject, "its file system is read-only; mount it writable, and look for disk errors (`dmesg`)")]
    free, size = facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize
    remedy = "delete topics, lower retention.bytes, or move to a larger disk"
    if free < _FULL_BYTES:
        return [problem(subject, f"its disk is full, {free // 1024**2} MiB are free; {remedy}")]
    if free < min(_FREE_BYTES_MIN, size * _FREE_SHARE_MIN):
        return [warning(subject, f"only {free // 1024**2} MiB are free; {remedy}")]
    if facts.f_files and facts.f_favail < _FILES_FREE_MIN:
        return [problem(subject, f"its file system has {facts.f_favail} inodes left; delete files or topics")]
    return []


def _check_file_system(subject: str, folder: Path) -> list[Finding]:
    kind = file_system(folder.resolve(), _MOUNTS.read_text(encoding="utf-8")) if _MOUNTS.is_file() else None
    if kind in _IN_MEMORY:
        return [warning(subject, f"it is in memory ({kind}), and empty after a restart of the machine; take a disk")]
    if kind is not None and kind.startswith(_ON_NETWORK):
        text = f"it is on a network file system ({kind}), whose locks and syncs may not hold; take a local disk"
        return [warning(subject, text)]
    return []


def file_system(folder: Path, mounts: str) -> str | None:
    """Return the type of a folder's file system.

    Args:
        mounts: text of /proc/self/mounts; the last mount of a path counts.
    """
    kinds: dict[str, str] = {}
    for line in mounts.splitlines():
        _, place, kind, *_ = line.split(" ")
        kinds[re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), place)] = kind
    for path in (folder, *folder.parents):
        if str(path) in kinds:
            return kinds[str(path)]
    return None


def _check_identity(subject: str, logs: Path, cluster_id: str | None) -> list[Finding]:
    meta = logs / _META
    if not meta.is_file():
        partitions = sorted(path.name for path in logs.iterdir() if path.is_dir() and _PARTITION.fullmatch(path.name))
        if not partitions:
            return []
        text = f"{_META} is missing from {logs}, but {partitions[0]} holds data; restore the file from a copy"
        return [problem(subject, text)]
    try:
        lines = [line for line in meta.read_text(encoding="utf-8").splitlines() if "=" in line and line[:1] != "#"]
    except UnicodeDecodeError:
        lines = []
    properties = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
    if missing := [name for name in ("version", "cluster.id", "node.id") if not properties.get(name)]:
        return [problem(subject, f"{meta} lacks {', '.join(missing)}; restore the file from a copy")]
    if cluster_id is not None and properties["cluster.id"] != cluster_id:
        text = (
            f"it is of cluster {properties['cluster.id']}, the brokers are of cluster {cluster_id}; check --data and "
            "--bootstrap-servers"
        )
        return [warning(subject, text)]
    return []


def _check_database(subject: str, file: Path) -> list[Finding]:
    if not file.is_file():
        return []
    with file.open("rb") as opened:
        begin = opened.read(len(_SQLITE))
    if begin in {b"", _SQLITE}:
        return []
    return [problem(subject, f"{file} is no SQLite database; restore it from a copy, and its -wal file with it")]
