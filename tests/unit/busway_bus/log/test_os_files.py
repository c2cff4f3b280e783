"""Writes that fail half way, on the operating system's files."""

import os

import pytest

from busway_bus.log.os_files import OsFiles


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
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.append([b"x"])


def test_the_first_sync_brings_the_name_to_disk_too(file, tmp_path, monkeypatch):
    """One sync of the directory for a file that was just opened, none afterwards; nor for one that is closed."""
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    file.sync()
    file.sync()
    assert len(synced) == 1
    file.close()
    file.sync()
