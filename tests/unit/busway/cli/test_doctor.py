"""The checks of `busway doctor` that need no server: versions, partitions, clocks, data directories."""

import os
from pathlib import Path
from typing import Any

import pytest
import typer

from busway.cli.cluster_checks import NEEDED, check_partitions, check_versions, compare_versions
from busway.cli.data_checks import check_data, file_system
from busway.cli.findings import compare_clocks, ok, problem, report, warning
from busway_protocol.apis import ApiKey, api
from busway_protocol.messages.cluster import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from busway_protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

META = "version=1\nnode.id=1\ncluster.id=c\ndirectory.id=d\n"


def versions(*, supported: int = 25, finalized: int = 25, **ranges: tuple[int, int]) -> ApiVersionsResponse:
    """Everything that a client needs, with other ranges for APIs by name."""
    served = {key: (api(key).min_version, api(key).max_version) for key in NEEDED}
    served |= {ApiKey[name]: offered for name, offered in ranges.items()}
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in served.items()],
        supported_features=[SupportedFeatureKey(name="metadata.version", min_version=1, max_version=supported)],
        finalized_features=[FinalizedFeatureKey(name="metadata.version", max_version_level=finalized)],
    )


def test_a_broker_without_a_version_in_common() -> None:
    """Such as one that is too old, or too new."""
    assert check_versions("broker 1", versions()) == []
    (finding,) = check_versions("broker 1", versions(FETCH=(0, 1), PRODUCE=(90, 99)))
    assert (finding.level, finding.subject) == ("problem", "broker 1")
    assert finding.text.startswith("no version of Produce, Fetch in common with this client, busway ")


def test_brokers_of_different_releases() -> None:
    """They are named, and so is an upgrade that was not finished."""
    assert compare_versions({1: versions(), 2: versions()}) == []
    (finding,) = compare_versions({1: versions(), 2: versions(FETCH=(4, 16))})
    assert (finding.level, finding.text.partition(";")[0]) == ("warning", "1, 2 serve different versions of Fetch")
    (finding,) = compare_versions({1: versions(finalized=20), 2: versions(finalized=20)})
    assert "`busway features upgrade metadata.version=25`" in finding.text
    assert compare_versions({1: versions(finalized=20), 2: versions(supported=20, finalized=20)}) == []


def metadata(*partitions: tuple[int, list[int], list[int]], controller: int = 1) -> MetadataResponse:
    """A topic of these partitions: leader, replicas, replicas in sync."""
    described: list[Any] = [
        MetadataResponsePartition(
            error_code=0,
            partition_index=at,
            leader_id=leader,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=[],
        )
        for at, (leader, replicas, isr) in enumerate(partitions)
    ]
    topic = MetadataResponseTopic(error_code=0, name="t", is_internal=False, partitions=described)
    node = MetadataResponseBroker(node_id=1, host="h", port=1, rack=None)
    return MetadataResponse(brokers=[node], cluster_id="c", controller_id=controller, topics=[topic])


def test_partitions() -> None:
    """Without a leader: a problem; with fewer replicas in sync: a warning."""
    assert [finding.level for finding in check_partitions(metadata((1, [1], [1])))] == ["ok"]
    offline, under = check_partitions(metadata((-1, [1, 2], [2]), (1, [1, 2], [1]), (1, [1], [1])))
    assert (offline.level, offline.text.partition(";")[0]) == ("problem", "1 without a leader, t-0")
    assert (under.level, under.text.partition(";")[0]) == ("warning", "1 with replicas out of sync, t-1")
    assert check_partitions(metadata(controller=-1))[0].text.startswith("there is no active controller")


@pytest.mark.parametrize(
    ("theirs_ms", "text"),
    [
        (1_000_050, "its clock agrees"),
        (1_004_900, "its clock agrees"),
        (1_062_100, "its clock is 62 s ahead of this machine's; synchronise both"),
        (938_000, "its clock is 62 s behind this machine's; synchronise both"),
    ],
)
def test_clocks(theirs_ms: int, text: str) -> None:
    """A response that took long is no skew."""
    assert compare_clocks("registry", theirs_ms, 1_000_000, 1_000_100).text.startswith(text)
    assert compare_clocks("registry", 1_030_000, 1_000_000, 1_060_000).level == "ok"


def test_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """1 if there is a problem; a line for each finding, whatever is in its text."""
    report([ok("a", "b"), warning("c", "d\ne\x1b[2J")], as_json=False)
    assert capsys.readouterr().out == "ok       a: b\nwarning  c: d e\\x1b[2J\n"
    with pytest.raises(typer.Exit) as ended:
        report([problem("a", "b")], as_json=True)
    assert ended.value.exit_code == 1
    assert capsys.readouterr().out == '[{"level": "problem", "subject": "a", "text": "b"}]\n'


def test_a_data_directory_that_is_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of `busway up`, that of a broker, and a default one that is not there."""
    monkeypatch.setattr("busway.cli.data_checks._MOUNTS", tmp_path / "absent")
    (tmp_path / "meta.properties").write_text(f"#\n{META}")
    (finding,) = check_data(tmp_path, "c", given=True)
    assert finding.level == "ok"
    up = tmp_path / "up"
    (up / "broker").mkdir(parents=True)
    (up / "broker/meta.properties").write_text(META)
    assert [finding.level for finding in check_data(up, "c", given=True)] == ["ok"]
    assert [finding.level for finding in check_data(up, "another", given=False)] == ["ok"]
    assert check_data(tmp_path / "absent", None, given=False) == []


def test_a_data_directory_with_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line each, with the remedy."""
    monkeypatch.setattr("busway.cli.data_checks._MOUNTS", tmp_path / "absent")

    def text(folder: Path, cluster_id: str | None = None) -> str:
        (finding,) = check_data(folder, cluster_id, given=True)
        return f"{finding.level}: {finding.text}"

    assert text(tmp_path / "absent").startswith("problem: it does not exist; --data FOLDER")
    (tmp_path / "file").touch()
    assert text(tmp_path / "file").startswith("problem: it is a file; ")
    logs = tmp_path / "logs"
    (logs / "orders-0").mkdir(parents=True)
    assert text(logs) == (
        f"problem: meta.properties is missing from {logs}, but orders-0 holds data; restore the file from a copy"
    )
    (logs / "meta.properties").write_text("version=1\nnode.id=1\n")
    assert "meta.properties lacks cluster.id; restore" in text(logs)
    (logs / "meta.properties").write_text(META)
    assert text(logs, "other").startswith("warning: it is of cluster c, the brokers are of cluster other; check --data")
    (logs / "registry.db").write_bytes(b"damaged")
    assert "registry.db is no SQLite database; restore it" in text(logs)
    (logs / "registry.db").unlink()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, rights: path != logs / "orders-0" and allowed(path, rights))
    assert text(logs).startswith(f"problem: {logs}/orders-0 cannot be read and written by this user (uid ")


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"f_bavail": 1}, "problem: its disk is full, 0 MiB are free; delete topics"),
        ({"f_bavail": 20_000}, "warning: only 78 MiB are free; delete topics"),
        ({"f_flag": os.ST_RDONLY}, "problem: its file system is read-only; mount it writable"),
        ({"f_favail": 5}, "problem: its file system has 5 inodes left; delete files"),
        ({"f_bavail": 200_000, "f_blocks": 1_000_000}, "ok: "),
    ],
)
def test_the_disk(facts: dict[str, int], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small disk with a fifth of it free is in order."""
    monkeypatch.setattr("busway.cli.data_checks._MOUNTS", tmp_path / "absent")
    usual = {
        "f_bavail": 9_000_000,
        "f_blocks": 10_000_000,
        "f_frsize": 4096,
        "f_flag": 0,
        "f_files": 9,
        "f_favail": 9999,
    }
    disk = type("Disk", (), usual | facts)
    monkeypatch.setattr(os, "statvfs", lambda folder: disk)
    (finding,) = check_data(tmp_path, None, given=True)
    assert f"{finding.level}: {finding.text}".startswith(text)


def test_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the innermost mount; one in memory or on the network is a warning."""
    mounts = "/dev/a / ext4 rw 0 0\nshm /dev/shm tmpfs rw 0 0\nhost:/x /mnt/my\\040data nfs4 rw 0 0\n"
    assert file_system(Path("/srv/kafka"), mounts) == "ext4"
    assert file_system(Path("/dev/shm/kafka"), mounts) == "tmpfs"
    assert file_system(Path("/mnt/my data/kafka"), mounts) == "nfs4"
    assert file_system(Path("/srv"), "") is None
    for kind, text in (("tmpfs", "it is in memory (tmpfs)"), ("nfs4", "it is on a network file system (nfs4)")):
        (tmp_path / "mounts").write_text(f"x {tmp_path} {kind} rw 0 0\n")
        monkeypatch.setattr("busway.cli.data_checks._MOUNTS", tmp_path / "mounts")
        (finding,) = check_data(tmp_path, None, given=True)
        assert (finding.level, finding.text.partition(",")[0]) == ("warning", text)
