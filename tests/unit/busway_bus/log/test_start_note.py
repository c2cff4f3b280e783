"""The log start offset in a file name: raised durably without space on the disk."""

import pytest

from busway_bus.log.file_names import START, file_name
from busway_bus.log.start_note import StartNote, noted
from busway_bus.testing.sim_files import SimFiles


def test_the_last_noted_offset_counts() -> None:
    """Other files are ignored."""
    names = [file_name(7, START), file_name(3, START), f"x{START}", "00000000000000000000.log"]
    assert noted(names) == [3, 7]


def test_a_note_moves_up_only_and_frees_its_space() -> None:
    """The first one is a renamed file; later ones rename the note."""
    files = SimFiles()
    files.make_directory("t-0")
    spare = files.open("t-0/00000000000000000000.index")
    spare.append([b"x" * 100])
    spare.close()
    note = StartNote(files, "t-0", 0)
    note.move(5, "t-0/00000000000000000000.index")
    note.move(4, "t-0/missing")
    assert noted(files.list("t-0")) == [5]
    note.empty()
    assert files.open(f"t-0/{file_name(5, START)}").size == 0
    note.move(9, "t-0/missing")
    assert noted(files.list("t-0")) == [9]


def test_a_failed_move_can_be_repeated() -> None:
    """Nothing is noted before the disk works again."""
    files = SimFiles()
    files.make_directory("t-0")
    files.open("t-0/spare").close()
    note = StartNote(files, "t-0", 0)
    files.failing = True
    with pytest.raises(OSError, match="input/output error"):
        note.move(5, "t-0/spare")
    files.failing = False
    note.move(5, "t-0/spare")
    assert noted(files.list("t-0")) == [5]
