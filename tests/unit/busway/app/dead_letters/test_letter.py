"""Dead letters, parsed from the headers that Busway, Spring and share groups write."""

import pytest

from busway.app.dead_letters.letter import DeadLetterSelection, dead_letter
from busway.types import Record, TopicPartition

HEADERS: tuple[tuple[str, bytes | None], ...] = (
    ("trace", b"abc"),
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", b"3"),
    ("kafka_dlt-original-offset", b"42"),
    ("kafka_dlt-original-consumer-group", b"shop"),
    ("kafka_dlt-exception-fqcn", b"builtins.ValueError"),
    ("kafka_dlt-exception-message", b"no such item"),
    ("kafka_dlt-exception-stacktrace", b"Traceback"),
    ("busway_dlt-handler", b"shop.service.take"),
    ("busway_dlt-attempts", b"4"),
    ("busway_replay-count", b"1"),
)


def record_with(*headers: tuple[str, bytes | None]) -> Record:
    """Make a record of a dead-letter topic."""
    return Record(
        topic="orders.dlq",
        partition=1,
        offset=7,
        timestamp_ms=1_000,
        timestamp_type=0,
        key=b"k",
        value=b"v",
        headers=headers,
        leader_epoch=0,
    )


def test_the_headers_say_what_failed() -> None:
    """The reasons are taken out of the headers; the original's stay."""
    letter = dead_letter(record_with(*HEADERS), done=False)
    assert letter.partition == TopicPartition("orders.dlq", 1)
    assert (letter.original, letter.original_offset) == (TopicPartition("orders", 3), 42)
    assert (letter.group, letter.handler, letter.attempts) == ("shop", "shop.service.take", 4)
    assert (letter.error, letter.message, letter.stack) == ("builtins.ValueError", "no such item", "Traceback")
    assert letter.headers == (("trace", b"abc"),)
    assert letter.says_why
    assert not letter.done


def test_spring_writes_numbers_as_bytes() -> None:
    """Four of them for a partition, eight for an offset."""
    letter = dead_letter(
        record_with(
            ("kafka_dlt-original-topic", b"orders"),
            ("kafka_dlt-original-partition", (3).to_bytes(4, "big")),
            ("kafka_dlt-original-offset", (2**40).to_bytes(8, "big")),
        ),
        done=True,
    )
    assert (letter.original, letter.original_offset, letter.attempts) == (TopicPartition("orders", 3), 2**40, 0)
    assert letter.done


def test_a_record_without_reasons_is_kept_as_it_is() -> None:
    """Any producer may write to the topic; what is missing is empty."""
    letter = dead_letter(record_with(("trace", None)), done=False)
    assert (letter.original, letter.original_offset, letter.group, letter.error) == (None, -1, "", "")
    assert letter.headers == (("trace", None),)
    assert not letter.says_why


def test_a_share_groups_letter_says_why() -> None:
    """KIP-1191 has headers of its own, which stay."""
    assert dead_letter(record_with(("__dlq.errors.topic", b"orders")), done=False).says_why


def test_text_that_is_no_utf8_is_shown_anyway() -> None:
    """Unreadable bytes are replaced."""
    letter = dead_letter(record_with(("kafka_dlt-exception-message", b"caf\xe9")), done=False)
    assert letter.message == "caf\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        (DeadLetterSelection(), True),
        (DeadLetterSelection(partition=1), True),
        (DeadLetterSelection(partition=0), False),
        (DeadLetterSelection(partition=1, offset=7), True),
        (DeadLetterSelection(partition=1, offset=8), False),
        (DeadLetterSelection(key=b"k"), True),
        (DeadLetterSelection(key=b""), False),
        (DeadLetterSelection(error="ValueError"), True),
        (DeadLetterSelection(error="no such"), True),
        (DeadLetterSelection(error="KeyError"), False),
    ],
)
def test_a_selection_matches_all_that_it_names(selection: DeadLetterSelection, selected: bool) -> None:
    """An error matches a part of the class or of the message."""
    assert selection.takes(dead_letter(record_with(*HEADERS), done=False)) is selected


def test_a_selection_that_cannot_be_meant() -> None:
    """An offset is one of a partition; a limit is at least 1."""
    with pytest.raises(ValueError, match="offset 7 is one of a partition: name the partition too"):
        DeadLetterSelection(offset=7)
    with pytest.raises(ValueError, match="limit: 0 is not 1 or more"):
        DeadLetterSelection(limit=0)
