"""Writes that fail half way, on the operating system's files."""

import os

import pytest

from busway_bus.log.os_files import OsFiles
from busway_bus.testing.sim_files import SimFiles


@pytest.fixture
def file(tmp_path):
    """A file that holds `good`."""
    files = OsFiles(str(tmp_path))
    made = files.open("a")
    made.append([b"good"])
    yield made
    made.close()
    files.close()


def fail(*_):
    """A full disk."""
    raise OSError(28, "no space left on device")


def test_what_a_failed_write_left_is_cut_off(file, monkeypatch):
    """A write that ends in the middle leaves the file as it was, and the next one goes on there."""
    monkeypatch.setattr(os, "writev", lambda descriptor, pieces: os.pwrite(descriptor, b"ha", 4))
    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(OSError, match="no space"):
        file.append([b"half", b"done"])
    monkeypatch.undo()
    assert (file.size, file.read(0, 100)) == (4, b"good")
    file.append([b" again"])
    assert file.read(0, 100) == b"good again"


def test_a_write_in_two_pieces_is_whole(file, monkeypatch):
    """The system may write less than was asked for."""
    write = os.write
    monkeypatch.setattr(os, "writev", lambda descriptor, pieces: write(descriptor, pieces[0][:3]))
    monkeypatch.setattr(os, "write", lambda descriptor, rest: write(descriptor, rest[:2]))
    file.append([b"half", b"done"])
    assert (file.size, file.read(4, 100)) == (12, b"halfdone")


def test_nothing_is_written_behind_what_could_not_be_cut_off(file, monkeypatch):
    """A file that even refuses to be cut takes no more."""
    monkeypatch.setattr(os, "writev", fail)
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(OSError, match="no space"):
        file.append([b"x"])
    monkeypatch.undo()
    with pytest.raises(OSError, match="the file is closed"):
        file.append([b"x"])


def test_what_waited_for_its_sync_before_that_never_counts_as_synced(file, monkeypatch):
    """The bytes before the damage were not on disk, and the file is closed: their waiters get the error."""
    file.append([b"written, not synced"])
    monkeypatch.setattr(os, "writev", fail)
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(OSError, match="no space"):
        file.append([b"x"])
    monkeypatch.undo()
    for _ in range(2):
        with pytest.raises(OSError, match="no space"):
            file.sync()


def test_the_first_sync_brings_the_name_to_disk_too(file, tmp_path, monkeypatch):
    """One sync of the directory for a file that was just opened, none afterwards; nor for one that is closed."""
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    file.sync()
    file.sync()
    assert len(synced) == 1
    file.close()
    file.sync()


def kept(name):
    """What a descriptor is of."""
    return os.path.basename(os.readlink(f"/proc/self/fd/{name}"))


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """Every sync, rename and directory made, in order; a sync says of which name, and which names its directory had."""
    events = []
    real = {name: getattr(os, name) for name in ("fsync", "fdatasync", "rename", "replace", "mkdir")}

    def spy(name, function):
        def call(*args, **kwargs):
            outcome = real[name](*args, **kwargs)
            events.append((name, function(*args)))
            return outcome

        monkeypatch.setattr(os, name, call)

    spy("fsync", kept)
    spy("fdatasync", kept)
    for name in ("rename", "replace"):
        spy(name, lambda old, new, *_: f"{os.path.basename(old)} > {os.path.basename(new)}")
    spy("mkdir", lambda path, *_: os.path.basename(path))
    return events


def test_a_replaced_file_is_synced_before_its_name_and_the_name_before_it_is_told(tmp_path, trace):
    """Content, name, directory: in any other order a power cut leaves an empty file under the name, or the old one after the answer."""
    files = OsFiles(str(tmp_path / "root"))
    trace.clear()
    files.replace("small", b"1")
    assert trace == [("fsync", "small.tmp"), ("replace", "small.tmp > small"), ("fsync", "root")]
    files.close()


def test_a_directory_and_a_new_name_are_on_disk_when_it_is_told(tmp_path, trace):
    """The directory above is synced behind them, once for many."""
    files = OsFiles(str(tmp_path / "root"))
    trace.clear()
    files.make_directory("a")
    assert trace == [("mkdir", "a"), ("fsync", "root")]
    trace.clear()
    files.make_directories(["b", "c", "b"])
    assert [event for event in trace if event[0] != "mkdir"] == [("fsync", "root")]
    assert trace[-1] == ("fsync", "root")
    trace.clear()
    files.rename("a", "d")
    files.rename_all([("b", "e"), ("c", "f")])
    assert trace == [
        ("rename", "a > d"),
        ("fsync", "root"),
        ("rename", "b > e"),
        ("rename", "c > f"),
        ("fsync", "root"),
    ]
    trace.clear()
    files.sync_directory("d")
    assert trace == [("fsync", "d")]
    files.close()


@pytest.mark.parametrize("failing", ["fdatasync", "fsync"])
def test_a_failed_sync_is_never_tried_again(file, monkeypatch, failing):
    """The system may have thrown the pages away and call the second one a success: it stays a failure."""
    calls = []

    def fail_once(descriptor):
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, failing, fail_once)
    depths = []
    for _ in range(4):
        with pytest.raises(OSError, match="Input/output") as raised:
            file.sync()
        depths.append(len(raised.traceback))
        assert len(calls) == 1
    assert depths[1] == depths[3], "its traceback does not grow"


@pytest.mark.parametrize("simulated", [False, True])
def test_a_file_that_is_created_later_is_there_from_its_first_append_on(tmp_path, simulated):
    """Until then it is empty to all; what an earlier file of that name held is not its own."""
    files = SimFiles() if simulated else OsFiles(str(tmp_path))
    later = files.create_later("a")
    later.truncate(0)
    later.sync()
    assert (later.size, files.list(".").count("a")) == (0, 0)
    files.replace("a", b"old")
    later.append(())
    assert files.read_bytes("a") == b""
    later.append([b"new"])
    later.sync()
    assert (later.size, later.read(0, 9), files.read_bytes("a")) == (3, b"new", b"new")
    later.close()
    files.create_later("b").close()
    assert "b" not in files.list(".")
    files.close()


def test_the_name_of_a_file_that_was_created_later_survives_a_power_cut():
    """Its first sync writes both."""
    files = SimFiles()
    later = files.create_later("a")
    later.append([b"new"])
    later.sync()
    files.cut_power(lambda limit: 0)
    assert files.read_bytes("a") == b"new"
