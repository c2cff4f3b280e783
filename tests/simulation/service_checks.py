"""Checks of a service that is exactly once: its output, its dead letters, its table and its offsets are of one piece.

Here: one function for each anomaly. That the service has committed the end of all that it reads, is asked by the run
itself (`scenario`), so that whatever is missing here is lost.
Not here: the transactions of other clients (`transaction_checks`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from tests.simulation.checks import PLAIN, Anomaly, Check, Rules
from tests.simulation.history import History, Partition
from tests.simulation.service_history import Copied, Row, ServiceRead, is_poison, row_key


def _readings(history: History, rules: Rules) -> Iterator[ServiceRead]:
    for read in history.of(ServiceRead):
        if read.ok and all(rules.get(partition.topic, PLAIN).whole for partition in read.sources):
            yield read


def _copies(read: ServiceRead) -> Iterator[tuple[Partition, int, Copied]]:
    for partition, records in read.copies.items():
        for record in records:
            yield partition, record.offset, Copied.read(record.value or b"")


def handled_once(history: History, rules: Rules) -> Iterator[Anomaly]:
    """A committed record has been made into no other, or into two, or into one although it is a dead letter, or what is not committed was."""
    for read in _readings(history, rules):
        made: Counter[tuple[Partition, int]] = Counter((copied.source, copied.offset) for _, _, copied in _copies(read))
        aside = Counter(read.letters)
        for partition, records in read.sources.items():
            for record in records:
                place = partition, record.offset
                wanted, other = (aside, made) if is_poison(record.value) else (made, aside)
                what = "dead letters" if is_poison(record.value) else "records"
                text = f"{read.process}: {wanted[place]} {what} were made of {partition} {record.offset}"
                if not wanted[place]:
                    yield Anomaly("not handled", text)
                elif wanted[place] > 1:
                    yield Anomaly("handled twice", text)
                if other[place]:
                    yield Anomaly("handled in two ways", text)
        there = {(partition, record.offset) for partition, records in read.sources.items() for record in records}
        for partition, offset in sorted((made.keys() | aside.keys()) - there):
            text = f"{read.process}: {offset} of {partition} was handled, which is not committed"
            yield Anomaly("handled what is not there", text)


def in_order(history: History, rules: Rules) -> Iterator[Anomaly]:
    """What was made of one record is before what was made of an earlier one."""
    for read in _readings(history, rules):
        last: dict[tuple[Partition, Partition], int] = {}
        for partition, offset, copied in _copies(read) if read.ordered else ():
            if copied.offset < last.get((partition, copied.source), -1):
                text = f"{read.process}: at {offset} of {partition} is what {copied.process} made of {copied.source} {copied.offset}"
                yield Anomaly("handled out of order", f"{text}, after {last[partition, copied.source]}")
            last[partition, copied.source] = copied.offset


def _expected(read: ServiceRead) -> tuple[dict[str, Row], dict[tuple[Partition, int], Row]]:
    """The rows in the end, and the row after each record."""
    rows: dict[str, Row] = defaultdict(Row)
    after: dict[tuple[Partition, int], Row] = {}
    for partition, records in read.sources.items():
        for record in records:
            if not is_poison(record.value):
                key = row_key(partition.number, record.value)
                rows[key] = after[partition, record.offset] = rows[key].after(record.offset)
    return dict(rows), after


def table_agrees(history: History, rules: Rules) -> Iterator[Anomaly]:
    """The table is not what follows from the records that were handled: as its topic has it, as instances have it, as handlers saw it."""
    for read in _readings(history, rules):
        if not read.ordered:
            continue
        rows, after = _expected(read)
        for _, _, copied in _copies(read):
            wanted = after.get((copied.source, copied.offset))
            if wanted is not None and copied.row != wanted:
                text = f"{read.process}: {copied.process} handled {copied.source} {copied.offset} and left {copied.row}, not {wanted}"
                yield Anomaly("handled with another row", text)
        latest: dict[str, Row] = {}
        for partition, records in read.rows.items():
            for record in records:
                key, row = (record.key or b"").decode(), Row(*map(int, (record.value or b"0/-1/0").split(b"/")))
                if row.events <= latest.get(key, Row()).events:
                    text = f"{read.process}: at {record.offset} of {partition} is {row} of {key}, after {latest[key]}"
                    yield Anomaly("row falls back", text)
                latest[key] = row
        if latest != rows:
            wrong = next(key for key in sorted(latest.keys() | rows.keys()) if latest.get(key) != rows.get(key))
            text = f"{read.process}: row {wrong} is {latest.get(wrong)} in its topic, and not {rows.get(wrong)}"
            yield Anomaly("table is not its events", text)
        for process, key, row in read.live:
            if row != latest.get(key):
                text = f"{process} has {row} as row {key}, its topic has {latest.get(key)}"
                yield Anomaly("table in memory is not its topic", text)


CHECKS: Final[tuple[Check, ...]] = (handled_once, in_order, table_agrees)
