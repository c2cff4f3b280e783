"""The classes of messages behave as the dataclasses that they are typed as."""

import copy
import pickle
from dataclasses import field

import pytest

from busway_protocol.records.crc import crc32c
from busway_protocol.schema import struct
from busway_protocol.types import Int32, Str


@struct
class Place:
    """Somewhere."""

    name: Str
    number: Int32 = 7
    tags: list[str] = field(default_factory=list)

    def shout(self) -> str:
        """A method of its own."""
        return self.name.upper()


def test_arguments() -> None:
    """By keyword alone; a missing, unknown or positional one is a TypeError that names the class, before and after the first object."""
    for _ in range(2):
        with pytest.raises(TypeError, match=r"Place\.__init__\(\) missing 1 required keyword-only argument: 'name'"):
            Place()
        with pytest.raises(TypeError, match="unexpected keyword argument 'nam'"):
            Place(name="a", nam="a")
        with pytest.raises(TypeError, match="positional"):
            Place("a")
    place = Place(name="a")
    assert (place.name, place.number, place.tags, place.unknown_tags, place.shout()) == ("a", 7, [], None, "A")
    assert Place(name="b", number=1).number == 1
    assert Place(name="b").tags is not place.tags


def test_values() -> None:
    """Equal by all fields, unknown tagged ones too; shown without those; no room for other names; copied and pickled."""
    place = Place(name="a")
    assert place == Place(name="a", number=7, tags=[])
    assert place != Place(name="a", unknown_tags={1: b""})
    assert place != "a"
    assert repr(place) == "Place(name='a', number=7, tags=[])"
    with pytest.raises(AttributeError):
        place.nam = 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(place)
    assert copy.deepcopy(place) == pickle.loads(pickle.dumps(place)) == place


def test_a_default_that_all_would_share_is_refused() -> None:
    """As dataclasses refuse it."""
    with pytest.raises(AssertionError, match=r"Wrong\.tags"):

        @struct
        class Wrong:
            """Its list would be one for all."""

            tags: list[str] = []


def test_the_checksum_is_crc32c() -> None:
    """The check value of the CRC catalogue, and continuing from a checksum."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
