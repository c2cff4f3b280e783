"""The contract of `Files`: the operating system's and the simulated one behave alike."""

import os

import pytest

from busway_bus.kernel.files import Files
from busway_bus.log.os_files import DirectoryInUse, OsFiles
from busway_bus.testing.sim_files import SimFiles


@pytest.fixture(params=["os", "sim"])
def files(request, tmp_path):
    """Each implementation in turn, with one directory `d`."""
    tree: Files = OsFiles(str(tmp_path)) if request.param == "os" else SimFiles()
    tree.make_directory("d")
    yield tree
    if isinstance(tree, OsFiles):
        tree.close()


def test_append_read_truncate(files):
    """Pieces land at the end in order, reads stop at the end, a cut moves the end."""
    file = files.open("d/a")
    file.append([b"one", bytearray(b"two"), memoryview(b"three")])
    assert file.size == 11
    assert file.read(3, 3) == b"two"
    assert file.read(9, 100) == b"ee"
    assert file.read(50, 1) == b""
    file.truncate(4)
    file.append([b"X"])
    assert (file.size, file.read(0, 99)) == (5, b"onetX")
    file.sync()
    file.close()
    assert files.open("d/a").size == 5


def test_a_lent_file_can_be_read_until_the_last_loan_is_over(files):
    """Closed and removed, its content is there for whoever has a loan, and nowhere else."""
    file = files.open("d/a")
    file.append([b"content"])
    loans = [file.lend(), file.lend()]
    loans.pop()
    file.close()
    files.remove("d/a")
    other = files.open("d/b")
    other.append([b"another"])
    assert loans[0].read(0, 3) == b"con"
    assert loans[0].read(3, 99) == b"tent"


def test_the_last_loan_closes_the_descriptor(tmp_path):
    """No descriptor is left behind, whichever ends first."""
    tree = OsFiles(str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for loan_first in (True, False):
        file = tree.open("a")
        loan = file.lend()
        if loan_first:
            del loan
            file.close()
        else:
            file.close()
            assert len(os.listdir("/proc/self/fd")) == before + 1
            del loan
        assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(OSError, match="closed"):
        file.lend()
    tree.close()


def test_small_files(files):
    """A replaced file is whole; a missing one is None; removing twice is quiet."""
    assert files.read_bytes("d/small") is None
    files.replace("d/small", b"1")
    files.replace("d/small", b"22")
    assert files.read_bytes("d/small") == b"22"
    files.remove("d/small")
    files.remove("d/small")
    assert files.read_bytes("d/small") is None


def test_tree(files):
    """Listing is sorted, a directory moves with what is in it, and goes with what is in it."""
    for name in ("b", "a"):
        files.open(f"d/{name}").close()
    assert list(files.list("d")) == ["a", "b"]
    assert list(files.list("missing")) == []
    files.rename("d", "e")
    assert list(files.list("d")) == []
    assert list(files.list("e")) == ["a", "b"]
    files.remove_tree("e")
    assert list(files.list("e")) == []
    with pytest.raises(FileNotFoundError):
        files.open("e/a")


def test_one_process_holds_the_directory(tmp_path):
    """A second opener is told which process holds the data directory."""
    import os

    first = OsFiles(str(tmp_path))
    with pytest.raises(DirectoryInUse, match=str(os.getpid())):
        OsFiles(str(tmp_path))
    first.close()
    OsFiles(str(tmp_path)).close()
