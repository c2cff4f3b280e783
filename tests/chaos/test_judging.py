"""The judges find each anomaly in a history that has it, and none in one without."""

import struct
from collections import Counter
from pathlib import Path

from tests.chaos.disk import dropped
from tests.chaos.foreign_clients import note
from tests.chaos.ledger import Ledger
from tests.chaos.replicas import METADATA, compare
from tests.chaos.report import NO_SPACE, Floors


def history() -> Ledger:
    """Two acknowledged records, a committed, an aborted and an unknown transaction."""
    ledger = Ledger()
    ledger.tried([f"w:{number}" for number in range(7)])
    for number in (0, 1):
        ledger.acknowledged("w", f"w:{number}")
    ledger.committed("w", ["w:2"])
    ledger.aborted("w", ["w:3"])
    ledger.unknown(["w:4", "w:5"], "test")
    return ledger


def counts(*values: str) -> dict[str, int]:
    """Return the anomalies, other than none, of these values in one partition."""
    final = {("t", 0, offset): value for offset, value in enumerate(values)}
    return {name: count for name, count in history().anomalies(final).counts().items() if count}


def test_anomalies_of_histories() -> None:
    """Each by itself."""
    assert counts("w:0", "w:1", "w:2") == {}
    assert counts("w:0", "w:1", "w:2", "w:4", "w:5", "w:6") == {}
    assert counts("w:0", "w:2") == {"lost": 1}
    assert counts("w:0", "w:1", "w:1", "w:2") == {"duplicated": 1}
    assert counts("w:0", "w:1", "w:2", "w:3") == {"aborted_visible": 1}
    assert counts("w:0", "w:1", "w:2", "w:4") == {"torn": 1}
    assert counts("w:1", "w:0", "w:2") == {"reordered": 1}
    assert counts("w:0", "w:1", "w:2", "w:9") == {"unwritten": 1}


def test_what_readers_saw_stays() -> None:
    """A record that was read and is gone, or another one, at its place."""
    ledger = history()
    ledger.seen(("t", 0, 7), "w:6")
    final = {("t", 0, offset): f"w:{offset}" for offset in range(3)}
    assert len(ledger.anomalies(final).changed) == 1
    assert not ledger.anomalies({**final, ("t", 0, 7): "w:6"}).changed


def batch(offset: int, content: bytes) -> bytes:
    """Return bytes with a batch's header, of one record."""
    rest = struct.pack(">ibiHi", 0, 2, 0, 0, 0) + content
    return struct.pack(">qi", offset, len(rest)) + rest


def test_replicas_that_differ(tmp_path: Path) -> None:
    """Below the high watermark only; a log where none should be differs, too."""
    for node_id, second in ((1, b"x"), (2, b"y")):
        log = tmp_path / str(node_id) / "t-0"
        log.mkdir(parents=True)
        (tmp_path / str(node_id) / METADATA).mkdir()
        (log / "00000000000000000000.log").write_bytes(batch(0, b"a") + batch(1, second))
    nodes = {node_id: tmp_path / str(node_id) for node_id in (1, 2)}
    for high_watermark, differences in ((1, 0), (2, 1), (3, 1)):
        for data in nodes.values():
            (data / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {high_watermark}\n")
        assert len(compare(nodes, {"t-0": (1, 2)}, 0).differences) == differences
    assert compare(nodes, {"t-0": (1,)}, 0).differences == ["t-0 is on node 2 and should not be"]


def test_bytes_that_a_cut_dropped(tmp_path: Path) -> None:
    """Files that are shorter, changed from some byte on, or gone."""
    before = {tmp_path / name: b"abcdef" for name in ("same", "shorter", "changed", "gone", "longer")}
    after = {tmp_path / "same": b"abcdef", tmp_path / "shorter": b"abcd", tmp_path / "changed": b"abc\0\0f"}
    assert dropped(before, {**after, tmp_path / "longer": b"abcdefg"}) == 2 + 3 + 6


def test_lines_of_programs() -> None:
    """Each outcome."""
    ledger = Ledger()
    for line in ("tried j j:0 j:1 j:2 j:3", "acknowledged j j:0", "failed j j:1", "committed j j:2", "aborted j j:3"):
        note(line, ledger)
    note("unknown j j:4 j:5\tcommit, Fenced", ledger)
    assert ledger.counts["unknown: j, commit, Fenced"] == 1
    final = {("t", 0, offset): f"j:{number}" for offset, number in enumerate((0, 2, 3, 4))}
    counted = ledger.anomalies(final).counts()
    assert {name for name, count in counted.items() if count} == {"aborted_visible", "torn", "unwritten"}


def test_floors() -> None:
    """A run that did nothing, or whose faults had no effect, fails."""
    kinds = ("cut off leader", "power loss all", "disk full leader")
    counts = Counter(
        {
            "acknowledged": 200,
            "committed": 20,
            "aborted": 5,
            "leader_changes": 3,
            "read": 100,
            **dict.fromkeys(kinds, 1),
        }
    )
    counts.update({"acknowledged by w": 200, "committed by w-transactions": 20})
    writers = ("w", "w-transactions")
    without_effect = ["no packet was dropped", "no power cut dropped a byte", "no node had too little space"]
    assert Floors().missed(3, kinds, writers, counts) == without_effect
    counts.update({"packets dropped": 1, "unsynced bytes dropped": 1, NO_SPACE: 1})
    assert Floors().missed(3, kinds, writers, counts) == []
    assert len(Floors().missed(3, kinds, writers, Counter())) == 5 + len(kinds) + len(writers)
