"""Checks of records and offsets: what was sent, where it was put, who read it.

Here: one function for each anomaly.
Not here: groups and topics.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.simulation.checks import PLAIN, Anomaly, Check, Rules, TopicRules, cut_for_damage
from tests.simulation.history import (
    Commit,
    DeleteRecords,
    EndOffset,
    FinalRead,
    Happening,
    History,
    Operation,
    Outcome,
    Ownership,
    Partition,
    Poll,
    Revoked,
    Seen,
    Send,
    partition_of,
    shown,
)
from tests.simulation.share_history import ShareTaken
from tests.simulation.transaction_history import Transaction

OUT_OF_ORDER: Final = "OUT_OF_ORDER_SEQUENCE_NUMBER"
BATCH_BYTES_MAX: Final = 61 + 64
"""What a record in a batch of its own takes beside its key and value, at most."""
_NO_SNAPSHOT: Final = re.compile(r"the producers' snapshot of (\S+) at .* cannot be written")
_REFUSED_PLACE: Final = re.compile(r"(\S+-\d+): ")


def _rules(rules: Rules, partition: Partition) -> TopicRules:
    return rules.get(partition.topic, PLAIN)


def _readings(history: History) -> Iterator[tuple[Operation, Seen]]:
    """Every record that anybody was given."""
    for operation in history.operations:
        if isinstance(operation, Poll | FinalRead | ShareTaken):
            for record in operation.records:
                yield operation, record


def _acknowledged(history: History) -> Iterator[Send]:
    return (send for send in history.of(Send) if send.ok and send.offset is not None)


def _positions(history: History) -> dict[Partition, dict[int, bytes | None]]:
    """What is known to be at each offset, by anybody's word; the last one counts."""
    known: dict[Partition, dict[int, bytes | None]] = defaultdict(dict)
    for send in _acknowledged(history):
        known[send.partition][send.offset or 0] = send.value
    for _, record in _readings(history):
        known[record.partition][record.offset] = record.value
    return known


def inconsistent_offsets(history: History, rules: Rules) -> Iterator[Anomaly]:
    """Two values at one offset."""
    values: dict[tuple[Partition, int], bytes | None] = {}
    reports = [(send.partition, send.offset or 0, send.value) for send in _acknowledged(history)]
    reports += [(record.partition, record.offset, record.value) for _, record in _readings(history)]
    for partition, offset, value in reports:
        if not _rules(rules, partition).durable or _rules(rules, partition).recreated:
            continue
        other = values.setdefault((partition, offset), value)
        if other != value:
            yield Anomaly("inconsistent offsets", f"{partition} has {shown(other)} and {shown(value)} at {offset}")


def duplicates(history: History, rules: Rules) -> Iterator[Anomaly]:
    """A record of an idempotent producer at two offsets."""
    idempotent = {send.value for send in history.of(Send) if send.idempotent and send.value is not None}
    places: dict[tuple[Partition, bytes], int] = {}
    reports = [(send.partition, send.offset or 0, send.value) for send in _acknowledged(history)]
    reports += [(record.partition, record.offset, record.value) for _, record in _readings(history)]
    for partition, offset, value in reports:
        if value is None or value not in idempotent or not _rules(rules, partition).durable:
            continue
        other = places.setdefault((partition, value), offset)
        if other != offset:
            yield Anomaly("duplicate", f"{partition} has {shown(value)} at {other} and at {offset}")


def misrouted(history: History, _: Rules) -> Iterator[Anomaly]:
    """A record that was read where it was not sent, or that is damaged."""
    for operation, record in _readings(history):
        if record.value is not None and (home := partition_of(record.value)) != record.partition:
            what = "damaged" if home is None else f"for {home}"
            yield Anomaly(
                "misrouted or damaged",
                f"{operation.process} read {shown(record.value)}, {what}, in {record.partition} at {record.offset}",
            )


def lost(history: History, rules: Rules) -> Iterator[Anomaly]:
    """Acknowledged, or read by a client, and not there at the end of the run."""
    excused = cut_for_damage(history)
    for final in history.of(FinalRead):
        rule = _rules(rules, final.partition)
        if not final.ok or rule.compacted or not rule.durable or rule.recreated or final.partition in excused:
            continue
        there = {record.offset: record.value for record in final.records}
        values = set(there.values())
        for send in history.of(Send):  # acknowledged, with others: the answer said no offset
            anywhere = send.ok and send.offset is None and send.partition == final.partition and final.start == 0
            if anywhere and send.value not in values:
                yield Anomaly("lost write", f"{shown(send.value)} was acknowledged, and is not in {final.partition}")
        for send in _acknowledged(history):
            offset = send.offset or 0
            if send.partition != final.partition or offset < final.start or there.get(offset, b"") == send.value:
                continue
            how = f"the end is {final.end}" if offset >= final.end else "it is not served"
            yield Anomaly("lost write", f"{shown(send.value)} acknowledged at {offset} of {final.partition}: {how}")
        for operation, record in _readings(history):
            if record.partition == final.partition and record.offset >= final.start and record.offset not in there:
                yield Anomaly(
                    "read and lost",
                    f"{operation.process} read {shown(record.value)} at {record.offset} of {final.partition}, "
                    f"which is not there at the end ({final.end})",
                )


def start_moved(history: History, rules: Rules) -> Iterator[Anomaly]:
    """Records went from the beginning of a partition that no client and no retention may have removed."""
    allowed: dict[Partition, int] = defaultdict(int)
    for deletion in history.of(DeleteRecords):
        if deletion.outcome is not Outcome.FAIL:
            allowed[deletion.partition] = max(allowed[deletion.partition], deletion.before)
    excused = cut_for_damage(history)
    for final in history.of(FinalRead):
        rule = _rules(rules, final.partition)
        if not final.ok or final.start <= allowed[final.partition] or final.partition in excused or rule.recreated:
            continue
        if rule.retention_bytes is None:
            yield Anomaly("records removed", f"{final.partition} begins at {final.start}; nobody may remove so much")
            continue
        left = sum(BATCH_BYTES_MAX + len(record.value or b"") + len(record.key or b"") for record in final.records)
        if left < rule.retention_bytes:
            yield Anomaly(
                "records removed",
                f"{final.partition} begins at {final.start} with at most {left} bytes left of {rule.retention_bytes} "
                f"that retention keeps",
            )


def disagreeing_readers(history: History, rules: Rules) -> Iterator[Anomaly]:
    """Two readers of the whole partition at the end are given different records."""
    first: dict[Partition, FinalRead] = {}
    for final in history.of(FinalRead):
        if not final.ok or _rules(rules, final.partition).compacted or not _rules(rules, final.partition).durable:
            continue
        other = first.setdefault(final.partition, final)
        start = max(other.start, final.start)
        final_records, theirs = (
            [record for record in read.records if record.offset >= start] for read in (final, other)
        )
        if final_records != theirs:
            text = f"{other.process} and {final.process} of {final.partition}: {len(theirs)} and {len(final_records)} records"
            yield Anomaly("disagreeing readers", text)


def skipped(history: History, rules: Rules) -> Iterator[Anomaly]:
    """A reader jumps over a record, or goes back, without a new assignment of the partition."""
    known = {partition: sorted(offsets) for partition, offsets in _positions(history).items()}
    ranks = {partition: {offset: rank for rank, offset in enumerate(offsets)} for partition, offsets in known.items()}
    last: dict[tuple[str, Partition], int] = {}
    for operation in history.returned():
        if isinstance(operation, Ownership):
            for partition in operation.new:
                last.pop((operation.process, partition), None)
        elif isinstance(operation, Revoked):
            for partition in operation.partitions:
                last.pop((operation.process, partition), None)
        elif isinstance(operation, Poll):
            for record in operation.records:
                rule, reader = _rules(rules, record.partition), (operation.process, record.partition)
                before = last.get(reader)
                last[reader] = record.offset
                if before is None or not rule.durable or rule.recreated:
                    continue
                if record.offset <= before:
                    text = f"{operation.process} read {record.offset} of {record.partition} after {before}"
                    yield Anomaly("non-monotonic poll", text)
                elif rule.whole and ranks[record.partition][record.offset] - ranks[record.partition][before] > 1:
                    text = f"{operation.process} read {record.offset} of {record.partition} directly after {before}"
                    yield Anomaly("poll skip", text)


def _rank(by_offset: Mapping[int, int], offset: int) -> int | None:
    if offset in by_offset or len(by_offset) != 1:
        return by_offset.get(offset)
    return next(iter(by_offset.values()))


def skipped_after_loss(history: History, rules: Rules) -> Iterator[Anomaly]:
    """Where a power cut may take the end of a partition, a reader is still given all that is there in the end, from where it began; one
    that gives it up to others begins again."""
    finals = {final.partition: final for final in history.of(FinalRead) if final.ok}
    readings: dict[tuple[str, Partition, int], list[Seen]] = defaultdict(list)
    times: dict[tuple[str, Partition], int] = defaultdict(int)
    for operation in history.returned():
        if isinstance(operation, Ownership | Revoked):
            for partition in operation.new if isinstance(operation, Ownership) else operation.partitions:
                times[operation.process, partition] += 1
        elif isinstance(operation, Poll):
            for record in operation.records:
                reader = (operation.process, record.partition)
                readings[*reader, times[reader]].append(record)
    for (process, partition, _), records in readings.items():
        final = finals.get(partition)
        rule = _rules(rules, partition)
        if final is None or rule.durable or rule.compacted or rule.cut or rule.recreated:
            continue
        ranks: dict[bytes | None, dict[int, int]] = defaultdict(dict)
        for position, record in enumerate(final.records):
            ranks[record.value][record.offset] = position
        # A value that was written twice (its producer is not idempotent) tells its rank by its offset alone.
        read = {rank for record in records if (rank := _rank(ranks[record.value], record.offset)) is not None}
        if read and (missing := set(range(min(read), max(read))) - read):
            record = final.records[min(missing)]
            text = f"{process} was never given {shown(record.value)} at {record.offset} of {partition}"
            yield Anomaly("skipped after loss", f"{text}, but what follows it")


def non_monotonic_sends(history: History, rules: Rules) -> Iterator[Anomaly]:
    """What one idempotent producer sent to a partition is not in the order in which it was handed over."""
    places: dict[tuple[Partition, bytes | None], int] = {}
    for _, record in _readings(history):
        places[record.partition, record.value] = record.offset
    last: dict[tuple[str, Partition], tuple[int, Send]] = {}
    for send in history.of(Send):
        if not send.idempotent or not _rules(rules, send.partition).durable or send.value is None:
            continue
        offset = send.offset if send.ok and send.offset is not None else places.get((send.partition, send.value))
        if offset is None:
            continue
        before = last.get((send.process, send.partition))
        if before is not None and before[0] >= offset and before[1].value != send.value:
            text = (
                f"{shown(send.value)} is at {offset}, {shown(before[1].value)} was sent before it and is at {before[0]}"
            )
            yield Anomaly("non-monotonic send", f"{send.partition}: {text}")
        last[send.process, send.partition] = (offset, send)


def offset_regress(history: History, rules: Rules) -> Iterator[Anomaly]:
    """A record sent after another was acknowledged is put before it."""
    highest: dict[Partition, int] = defaultdict(lambda: -1)
    at_invocation: dict[int, int] = {}
    for _, began, send in _in_order([*_acknowledged(history)]):
        assert isinstance(send, Send)
        if began:
            at_invocation[id(send)] = highest[send.partition]
            continue
        offset = send.offset or 0
        if offset <= at_invocation[id(send)] and _rules(rules, send.partition).durable:
            text = f"{shown(send.value)} is at {offset} of {send.partition}; {at_invocation[id(send)]} was acknowledged before"
            yield Anomaly("offset regress", text)
        highest[send.partition] = max(highest[send.partition], offset)


def end_regress(history: History, rules: Rules) -> Iterator[Anomaly]:
    """The end of a partition falls behind what was answered or read before."""
    highest: dict[Partition, int] = defaultdict(int)
    at_invocation: dict[int, int] = {}
    relevant = [
        operation
        for operation in history.operations
        if operation.ok and isinstance(operation, EndOffset | Poll | Send | Commit)
    ]
    for _, began, operation in _in_order(relevant):
        if isinstance(operation, EndOffset):
            rule = _rules(rules, operation.partition)
            if began:
                at_invocation[id(operation)] = highest[operation.partition]
            elif operation.offset is not None and rule.durable and not rule.recreated:
                before = at_invocation[id(operation)]
                if operation.offset < before:
                    text = f"{operation.process} was told {operation.offset} for {operation.partition}; it was {before}"
                    yield Anomaly("end offset regress", text)
                highest[operation.partition] = max(highest[operation.partition], operation.offset)
        elif not began and isinstance(operation, Send) and operation.offset is not None:
            highest[operation.partition] = max(highest[operation.partition], operation.offset + 1)
        elif not began and isinstance(operation, Poll):
            for record in operation.records:
                highest[record.partition] = max(highest[record.partition], record.offset + 1)


def _in_order(operations: Sequence[Operation]) -> list[tuple[int, bool, Operation]]:
    """Invocations (True) and returns (False) of operations that returned, in the one order."""
    events = [(operation.invoked, True, operation) for operation in operations]
    events += [(operation.returned or 0, False, operation) for operation in operations]
    return sorted(events, key=lambda event: event[0])


def compacted_wrong(history: History, rules: Rules) -> Iterator[Anomaly]:
    """A key without its last value, or with an older one beside a newer tombstone that is gone."""
    excused = cut_for_damage(history)
    transactional = {send.partition for transaction in history.of(Transaction) for send in transaction.sends}
    for final in history.of(FinalRead):
        if not final.ok or not _rules(rules, final.partition).compacted or final.partition in excused:
            continue
        if final.partition in transactional:
            continue  # see `transaction_checks.compacted_wrong`
        newest: dict[bytes, tuple[int, bytes | None]] = {}
        uncertain = {send.key for send in history.of(Send) if not send.ok and send.value is None}
        reports = [
            (send.key, send.offset or 0, send.value)
            for send in _acknowledged(history)
            if send.partition == final.partition
        ]
        reports += [
            (record.key, record.offset, record.value)
            for _, record in _readings(history)
            if record.partition == final.partition
        ]
        for key, offset, value in reports:
            if key is not None and offset >= newest.get(key, (-1, None))[0]:
                newest[key] = (offset, value)
        there = {record.offset: record for record in final.records}
        for key, (offset, value) in newest.items():
            if key in uncertain or offset < final.start:
                continue
            record = there.get(offset)
            if value is not None and (record is None or record.value != value):
                yield Anomaly(
                    "compaction lost a key", f"{final.partition}: {shown(value)} at {offset} is the last of its key"
                )
            if value is None and record is None:
                older = [record for record in final.records if record.key == key and record.offset < offset]
                if older:
                    text = f"{shown(older[0].value)} at {older[0].offset} is back; the tombstone was at {offset}"
                    yield Anomaly("compaction revived a key", f"{final.partition}: {text}")


def lost_track(history: History, rules: Rules) -> Iterator[Anomaly]:
    """Broker and producer disagree about sequence numbers although nothing was lost.

    A producer has one batch of a partition under way, so there is never a gap; it mends the disagreement by itself, and no other check would
    notice. What a producer's last batch was is lost where that was deleted while a full disk had no room for a snapshot; retention has to
    make the room.
    """
    if not all(rule.durable for rule in rules.values()):
        return
    unwritten = {
        match[1]
        for event in history.of(Happening)
        if (match := _NO_SNAPSHOT.match(event.text)) and event.kind == "warning"
    }
    for event in history.of(Happening):
        if event.kind == "refused":
            place = _REFUSED_PLACE.search(event.text)
            topic = place[1].rpartition("-")[0] if place else ""
            if place and place[1] in unwritten and rules.get(topic, PLAIN).cut:
                continue
            yield Anomaly("lost track", f"{event.process}: {event.text}")


CHECKS: Final[tuple[Check, ...]] = (
    lost_track,
    inconsistent_offsets,
    duplicates,
    misrouted,
    lost,
    start_moved,
    disagreeing_readers,
    skipped,
    skipped_after_loss,
    non_monotonic_sends,
    offset_regress,
    end_regress,
    compacted_wrong,
)
