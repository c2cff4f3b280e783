"""Very many files with few descriptors: what is not used is closed and opened again, and nothing is lost or mixed up by it."""

import errno
import os
import random
import resource
import subprocess
import sys
import threading

import pytest

from busway_bus.log import descriptors
from busway_bus.log.descriptors import Descriptors
from busway_bus.log.os_files import OsFiles


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A tree with four descriptors for files."""
    monkeypatch.setattr(descriptors, "FILES_MIN", 4)
    tree = OsFiles(str(tmp_path))
    tree.descriptors = Descriptors(4)
    yield tree
    tree.close()


def make_files(files, count):
    """That many files with their number in them, synced."""
    made = [files.open(str(number)) for number in range(count)]
    for number, file in enumerate(made):
        file.append([b"%03d" % number])
        file.sync()
    return made


def test_more_files_than_descriptors_are_read_and_written(files):
    """In any order, each keeps its own content."""
    made = make_files(files, 30)
    assert len(files.descriptors) <= 5
    order = random.Random(7).sample(range(30), 30)
    for number in order:
        made[number].append([b"!"])
        made[number].sync()
    assert [file.read(0, 9) for file in made] == [b"%03d!" % number for number in range(30)]
    assert len(files.descriptors) <= 5
    for file in made:
        file.close()
    assert len(files.descriptors) == 0


def test_what_is_not_synced_stays_open(files):
    """The system tells of a failed write to those who have the file open; an index is made again and may go."""
    made = make_files(files, 4)
    made[0].append([b"not synced"])
    made[1].disposable = True
    made[1].append([b"index"])
    for file in make_files(files, 30):
        file.read(0, 1)
    assert made[0].descriptor >= 0
    assert made[1].descriptor < 0
    made[0].sync()
    for file in make_files(files, 30):
        file.read(0, 1)
    assert made[0].descriptor < 0


def test_a_file_that_got_another_name_is_found_by_it(files):
    """Renamed while it has a descriptor and while it has none; the old name is not made again."""
    made = make_files(files, 30)
    for number in (0, 29):
        files.rename(str(number), f"{number}.deleted")
    some_more = [file.read(0, 3) for file in made[::-1]]
    assert some_more == [b"%03d" % number for number in range(29, -1, -1)]
    assert "0" not in files.list(".")


def test_where_the_process_has_no_more_descriptors_one_is_spared(files, monkeypatch):
    """Connections may have taken them; and where none can be spared the error names the limit."""
    made = make_files(files, 3)
    real, refused = os.open, []

    def scarce(*args, **kwargs):
        if sum(file.descriptor >= 0 for file in made) >= 2:
            refused.append(args)
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*args, **kwargs)

    monkeypatch.setattr(os, "open", scarce)
    assert files.open("new").size == 0
    assert refused
    assert sum(file.descriptor >= 0 for file in made) <= 2
    monkeypatch.undo()
    for file in made:
        file.append([b"not synced"])
    monkeypatch.setattr(os, "open", scarce)
    with pytest.raises(OSError, match=r"limit of open files is .* raise it"):
        files.open("another")


def test_where_the_process_has_no_more_descriptors_names_come_to_disk_all_the_same(files, monkeypatch):
    """A sync that cannot open the directory would count as a disk that failed, for ever; one file is spared for that."""
    made = make_files(files, 3)
    new = files.open("new")
    new.append([b"not synced"])
    real = os.open

    def scarce(*args, **kwargs):
        if sum(file.descriptor >= 0 for file in made) >= 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*args, **kwargs)

    monkeypatch.setattr(os, "open", scarce)
    new.sync()
    monkeypatch.setattr(os, "open", real)
    for file in made:
        file.read(0, 1)
    monkeypatch.setattr(os, "open", scarce)
    files.replace("checkpoint", b"0")
    assert files.read_bytes("checkpoint") == b"0"


def test_threads_may_use_the_same_files(files):
    """Readers, writers and those who sync, with a descriptor taken away under each of them all the time."""
    made = make_files(files, 20)
    problems = []

    def work(seed):
        numbers = random.Random(seed)
        try:
            for _ in range(300):
                number = numbers.randrange(20)
                assert made[number].read(0, 3) == b"%03d" % number
                if number % 5 == seed:  # one writer each, as in a log
                    made[number].append([b"+"])
                    made[number].sync()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    for number, file in enumerate(made):
        assert file.read(0, file.size + 1) == b"%03d" % number + b"+" * (file.size - 3)


def test_a_file_in_use_is_closed_when_its_user_is_done(files):
    """Its number must not become another file's under the hands of a thread that reads."""
    file = make_files(files, 1)[0]
    number = files.descriptors.take(file)
    file.close()
    assert os.pread(number, 3, 0) == b"000"
    files.descriptors.give(file)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pread(number, 3, 0)
    with pytest.raises(OSError, match="the file is closed"):
        file.read(0, 1)


def test_the_soft_limit_is_raised_to_the_hard_one():
    """What a shell gives by default is 1,024 and a hard limit far above it."""
    code = (
        "import resource; from busway_bus.log.descriptors import raise_limit; "
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard)); "
        "print(raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0], hard)"
    )
    raised_to, soft, hard = map(int, subprocess.check_output([sys.executable, "-c", code]).split())
    assert hard == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert soft == hard or soft >= 10_240
    assert raised_to in {soft, descriptors.UNLIMITED}
