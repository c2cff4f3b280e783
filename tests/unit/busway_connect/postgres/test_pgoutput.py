"""pgoutput's messages: bytes that PostgreSQL 15 sent, bytes by its documentation, and bytes that are neither."""

import random
from pathlib import Path

import pytest
from tests.support.seeds import seed

from busway_connect.postgres import pgoutput
from busway_connect.postgres.pgoutput import UNCHANGED, Malformed, decode

SENT = [bytes.fromhex(line) for line in (Path(__file__).parent / "pgoutput_15.txt").read_text().split()]


def test_what_the_server_sent_is_understood() -> None:
    """Two tables, with every kind of change, an origin and a message: each comes out as it went in."""
    kinds = [type(decode(message)).__name__ for message in SENT]
    assert "".join(kind[0] for kind in kinds) == "BTRICBUCBUCBDCBRICBUCBDCBTRRTCBORICBOMC"
    changes = [decode(message) for message in SENT if message[:1] in b"IUDTOM"]
    t, f = (decode(message) for message in SENT[:17] if message[:1] == b"R")
    assert isinstance(t, pgoutput.Relation)
    assert isinstance(f, pgoutput.Relation)
    assert (t.schema, t.name, t.replica_identity) == ("public", "t", "d")
    assert [(column.name, column.key, column.type_modifier) for column in t.columns] == [
        ("id", True, -1),
        ("name", False, -1),
        ("note", False, -1),
        ("m", False, -1),
    ]
    assert f.replica_identity == "f"
    assert f.columns[1].type_modifier == ((5 << 16) | 2) + 4
    assert changes == [
        pgoutput.Insert(relation=t.oid, new=("1", "é", "x" * 3000, "sad")),
        pgoutput.Update(relation=t.oid, old=None, old_is_key=False, new=("1", None, UNCHANGED, "sad")),
        pgoutput.Update(
            relation=t.oid, old=("1", None, None, None), old_is_key=True, new=("2", None, UNCHANGED, "sad")
        ),
        pgoutput.Delete(relation=t.oid, old=("2", None, None, None), old_is_key=True),
        pgoutput.Insert(relation=f.oid, new=("1", "2.50")),
        pgoutput.Update(relation=f.oid, old=("1", "2.50"), old_is_key=False, new=("3", "2.50")),
        pgoutput.Delete(relation=f.oid, old=("3", "2.50"), old_is_key=False),
        pgoutput.Truncate(relations=(t.oid, f.oid), cascade=True, restart_identity=True),
        pgoutput.Origin(commit_lsn=0xABCDEF, name="elsewhere"),
        pgoutput.Insert(relation=f.oid, new=(None, None)),
        changes[-2],
        changes[-1],
    ]
    message = changes[-1]
    assert isinstance(message, pgoutput.Message)
    assert (message.transactional, message.prefix, message.content) == (True, "prefix", b"content")


def test_begin_and_commit_have_the_documented_layout() -> None:
    """Int64 LSN, Int64 microseconds since 2000, Int32 xid; Int8 flags and both LSNs for a commit."""
    begin = decode(b"B" + bytes(7) + b"\x09" + bytes(7) + b"\x05" + b"\xff\xff\xff\xff")
    assert begin == pgoutput.Begin(final_lsn=9, commit_us=pgoutput.POSTGRES_EPOCH_US + 5, xid=2**32 - 1)
    commit = decode(b"C\0" + bytes(7) + b"\x09" + bytes(7) + b"\x0a" + b"\xff" * 8)
    assert commit == pgoutput.Commit(commit_lsn=9, end_lsn=10, commit_us=pgoutput.POSTGRES_EPOCH_US - 1)


@pytest.mark.parametrize(
    "data", [b"", b"Z", b"B", b"I\0\0\0\x01X", b"I\0\0\0\x01N\0\x01q", b"I\0\0\0\x01N\0\x01t\xff\xff\xff\xff", b"R\0\0\0\x01pub"]
)  # fmt: skip
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    """Empty, unknown, cut off, or with a length that is not there."""
    with pytest.raises(Malformed):
        decode(data)


def test_damaged_messages_are_refused_or_read_and_nothing_else() -> None:
    """Random damage to what the server sent never ends in another error."""
    chance = random.Random(seed(1))
    short = [message for message in SENT if len(message) < 100]
    for _ in range(4000):
        data = bytearray(chance.choice(short))
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(data))
            if chance.random() < 0.3:
                del data[place:]
                break
            data[place] = chance.randrange(256)
        try:
            decode(bytes(data))
        except Malformed:
            continue


def test_every_cut_message_is_refused() -> None:
    """A message without its end, or with something behind it, is no message."""
    for message in SENT:
        for end in range(0, len(message), 1 if len(message) < 100 else 500):
            with pytest.raises(Malformed):
                decode(message[:end])
        with pytest.raises(Malformed):
            decode(message + b"\0")
