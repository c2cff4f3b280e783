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
    """Closed and removed, its content is there for all holders of a loan, and nowhere else."""
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


def test_what_is_in_memory_is_read_at_once(files):
    """Just written, it is; a read that must not wait gives the same, also at the end of the file."""
    file = files.open("d/a")
    file.append([b"content"])
    assert file.read_now(3, 3) == b"ten"
    assert file.read_now(3, 99) == b"tent"
    assert file.read_now(7, 1) == b""
    loan = file.lend()
    assert loan.read_now(3, 3) == b"ten"
    with pytest.raises(BlockingIOError):
        loan.read_now(3, 5)
    assert loan.in_memory(0, 7)
    assert loan.in_memory(0, 0)
    loan.warm(0, 7)
    if loan.descriptor >= 0:
        assert os.pread(loan.descriptor, 99, 0) == b"content"


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


def test_what_is_written_again_is_the_same(files):
    """From any position on, also behind the end; appending goes on at the end."""
    file = files.open("d/a")
    file.append([b"one", b"two"])
    for position in (0, 4, 6, 9):
        file.rewrite(position)
    file.append([b"three"])
    file.rewrite(3)
    file.sync()
    assert file.size == 11
    assert file.read(0, 99) == b"onetwothree"
    file.close()
    assert files.read_bytes("d/a") == b"onetwothree"


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


def test_many_at_once(files):
    """Directories are made and renamed together; what is there already stays."""
    files.open("d/a").close()
    files.make_directories(["x", "d", "y"])
    assert list(files.list("d")) == ["a"]
    files.replace("x/1", b"1")
    files.rename_all([("x", "x2"), ("y", "y2")])
    assert files.read_bytes("x2/1") == b"1"
    assert {"d", "x2", "y2"} <= set(files.list("."))
    files.make_directories([])
    files.rename_all([])
    files.sync_directory("x2")


def test_a_file_that_is_open_goes_on_under_its_new_name(files):
    """Who has it open reads and writes it on."""
    file = files.open("d/a")
    file.append([b"one"])
    files.rename("d/a", "d/b")
    file.append([b"two"])
    file.sync()
    assert file.read(0, 9) == b"onetwo"
    assert files.read_bytes("d/b") == b"onetwo"
    assert list(files.list("d")) == ["b"]


def test_one_process_holds_the_directory(tmp_path):
    """A second opener learns which process holds the data directory."""
    import os

    first = OsFiles(str(tmp_path))
    with pytest.raises(DirectoryInUse, match=str(os.getpid())):
        OsFiles(str(tmp_path))
    first.close()
    OsFiles(str(tmp_path)).close()
