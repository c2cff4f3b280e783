"""The simulated disk: what a power cut leaves, and how it fails."""

import random

import pytest

from busway_bus.testing.sim_disk import PAGE
from busway_bus.testing.sim_files import PowerCut, SimFiles

NOTHING = lambda limit: 0  # noqa: E731 - as `Pick` is called


def everything(limit: int) -> int:
    """Whatever can survive does."""
    return limit - 1


def tree() -> SimFiles:
    """A directory that is there for good."""
    files = SimFiles()
    files.make_directory("d")
    return files


def test_what_was_synced_is_there() -> None:
    """And nothing else has to be."""
    files = tree()
    file = files.open("d/a")
    file.append([b"one"])
    file.sync()
    file.append([b"two"])
    files.open("d/b").append([b"lost"])
    files.cut_power(NOTHING)
    assert files.read_bytes("d/a") == b"one"
    assert list(files.list("d")) == ["a"]


def test_any_pages_of_what_was_not_synced_may_be_there() -> None:
    """A torn end, pages with holes of zeros between them, or zeros alone; what was synced is whole in all of them."""
    content = b"".join(bytes([65 + page]) * PAGE for page in range(4))
    seen: set[bytes] = set()
    for seed in range(200):
        files = tree()
        file = files.open("d/a")
        file.append([content[:PAGE]])
        file.sync()
        file.append([content[PAGE:]])
        files.cut_power(random.Random(seed).randrange)
        left = files.read_bytes("d/a")
        assert left is not None
        assert left[:PAGE] == content[:PAGE]
        for at, byte in enumerate(left):
            assert byte in (content[at], 0)
        seen.add(bytes(left[page * PAGE] for page in range(len(left) // PAGE)))
    assert {b"A", b"AB", b"A\0\0", b"AB\0"} <= seen


def test_names_that_were_not_synced_may_be_gone_or_back() -> None:
    """A file made, one removed; in the order of the changes."""
    left = set()
    for seed in range(50):
        files = tree()
        files.replace("d/old", b"old")
        file = files.open("d/new")
        file.append([b"x"])
        files.remove("d/old")
        files.cut_power(random.Random(seed).randrange)
        left.add(tuple(files.list("d")))
    assert left == {("old",), ("new", "old"), ("new",)}


def test_a_removed_tree_may_be_back_in_part() -> None:
    """Until the directory above is synced."""
    files = tree()
    for name in ("a", "b"):
        files.replace(f"d/{name}", b"x")
    files.remove_tree("d")
    assert list(files.list(".")) == []
    files.cut_power(NOTHING)
    assert list(files.list("d")) == ["a", "b"]
    files.remove_tree("d")
    files.sync_directory(".")
    files.cut_power(NOTHING)
    assert list(files.list(".")) == []


@pytest.mark.parametrize("steps", range(5))
def test_a_rename_and_a_replace_are_there_or_not(steps: int) -> None:
    """Whichever step the power goes at; afterwards nothing more is done until it is back."""
    files = tree()
    files.replace("d/a", b"1")
    files.steps_left = steps
    try:
        files.replace("d/a", b"2")
        files.rename("d/a", "d/b")
    except PowerCut:
        for step in (lambda: files.remove("d/a"), lambda: files.read_bytes("d/a"), lambda: files.open("d/c")):
            with pytest.raises(PowerCut):
                step()
    files.cut_power(random.Random(steps).randrange)
    (name,) = files.list("d")
    assert (name, files.read_bytes(f"d/{name}")) in {("a", b"1"), ("a", b"2"), ("b", b"2")}


def test_what_a_failed_sync_left_out_is_never_written() -> None:
    """The next sync of another handle finds nothing to do, as on Linux."""
    files = tree()
    file = files.open("d/a")
    file.append([b"one"])
    files.failing_syncs = True
    with pytest.raises(OSError, match="sync"):
        file.sync()
    files.failing_syncs = False
    with pytest.raises(OSError, match="sync"):
        file.sync()
    again = files.open("d/a")
    again.sync()
    assert files.read_bytes("d/a") == b"one"
    files.cut_power(everything)
    assert files.read_bytes("d/a") == b"\0\0\0" or files.read_bytes("d/a") == b""


def test_what_is_written_again_is_synced_again() -> None:
    """Also what a failed sync left out."""
    files = tree()
    file = files.open("d/a")
    file.append([b"one"])
    files.failing_syncs = True
    with pytest.raises(OSError, match="sync"):
        file.sync()
    files.failing_syncs = False
    again = files.open("d/a")
    again.rewrite(0)
    again.sync()
    files.cut_power(everything)
    assert files.read_bytes("d/a") == b"one"


def test_a_full_disk_takes_no_more() -> None:
    """Until there is room again."""
    files = tree()
    files.faults.capacity = 10
    file = files.open("d/a")
    file.append([bytes(8)])
    with pytest.raises(OSError, match="No space"):
        file.append([bytes(3)])
    with pytest.raises(OSError, match="No space"):
        files.replace("d/b", bytes(3))
    assert files.volume() == (10, 2)
    file.truncate(0)
    files.replace("d/b", bytes(3))
    assert files.volume() == (10, 7)


def test_faults_are_drawn() -> None:
    """Some accesses fail, the same ones for the same seed."""

    def failures(seed: int) -> list[int]:
        files = SimFiles(random.Random(seed))
        files.make_directory("d")
        file = files.open("d/a")
        files.faults.writes = files.faults.reads = 0.2
        failed = []
        for at in range(50):
            try:
                file.append([b"x"])
                file.read(0, 1)
            except OSError:
                failed.append(at)
        return failed

    assert failures(1) == failures(1) != failures(2)
    assert 0 < len(failures(1)) < 50


def test_a_closed_file_is_closed() -> None:
    """As one of the operating system; a sync of it needs no disk."""
    files = tree()
    file = files.open("d/a")
    file.close()
    file.sync()
    for access in (lambda: file.append([b"x"]), lambda: file.read(0, 1), lambda: file.truncate(0), file.lend):
        with pytest.raises(OSError, match="closed"):
            access()
