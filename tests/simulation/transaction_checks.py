"""Checks of transactions: all or nothing, for readers of committed records and for the offsets of flows.

Here: one function for each anomaly.
Not here: records as every reader sees them (`record_checks`). That readers reach the end once nothing goes wrong any
more, no transaction being left open, is asked by the run itself (`scenario`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from tests.simulation.checks import PLAIN, Anomaly, Check, Rules, cut_for_damage
from tests.simulation.history import History, Partition, Seen, Send, shown
from tests.simulation.transaction_history import (
    CommittedPoll,
    CommittedRead,
    GroupOffset,
    Source,
    StaleOffsets,
    Transaction,
)


def _by_value(history: History) -> dict[bytes, Transaction]:
    return {value: transaction for transaction in history.of(Transaction) for _, value in transaction.values}


def _whole(rules: Rules, partition: Partition) -> bool:
    return rules.get(partition.topic, PLAIN).whole


def _finals(history: History, rules: Rules) -> list[CommittedRead]:
    return [read for read in history.of(CommittedRead) if read.ok and _whole(rules, read.partition)]


def _visible(history: History, rules: Rules) -> dict[str, dict[bytes, Seen]]:
    """By reading at the end: what was there, by value."""
    visible: dict[str, dict[bytes, Seen]] = defaultdict(dict)
    for read in _finals(history, rules):
        visible[read.reading].update({record.value: record for record in read.records if record.value is not None})
    return visible


def aborted_reads(history: History, _: Rules) -> Iterator[Anomaly]:
    """A reader of committed records is given one of a transaction that is not committed, or whose commit was not requested yet."""
    transactions = _by_value(history)
    # What is cut where it is damaged may be a marker: then the end of that transaction is unknown.
    cut = {partition.topic for partition in cut_for_damage(history)}
    for operation in history.operations:
        if not isinstance(operation, CommittedPoll | CommittedRead) or operation.returned is None:
            continue
        for record in operation.records:
            transaction = transactions.get(record.value or b"")
            if transaction is None or record.partition.topic in cut:
                continue
            text = f"{operation.process} was given {shown(record.value)} at {record.offset} of {record.partition}"
            if not transaction.may_count:
                yield Anomaly("aborted read", f"{text}, of a transaction that is aborted")
            elif operation.returned < (transaction.asked or 0):
                yield Anomaly("read before commit", f"{text} before its commit was asked for")


def lost_commits(history: History, rules: Rules) -> Iterator[Anomaly]:
    """Committed, or read by a reader of committed records, or acknowledged outside of all transactions, and not there in the end."""
    transactions = _by_value(history)
    for final in _finals(history, rules):
        values = {record.value for record in final.records}
        for transaction in history.of(Transaction):
            if transaction.ok:
                for partition, value in transaction.values:
                    if partition == final.partition and value not in values:
                        text = f"{shown(value)} of a committed transaction is not in {partition} for {final.process}"
                        yield Anomaly("lost commit", text)
        for poll in history.of(CommittedPoll):
            for record in poll.records:
                if record.partition == final.partition and record.value not in values:
                    text = f"{poll.process} was given {shown(record.value)} at {record.offset} of {record.partition}"
                    yield Anomaly("committed read and lost", f"{text}, {final.process} was not")
        for send in history.of(Send):
            outside = send.partition == final.partition and send.ok and send.value not in transactions
            if outside and send.value is not None and send.value not in values:
                yield Anomaly("hidden record", f"{final.process} was not given {send.describe()}")


def torn(history: History, rules: Rules) -> Iterator[Anomaly]:
    """A part of a transaction is committed and another is not."""
    whole = {(read.reading, read.partition) for read in _finals(history, rules)}
    for reading, visible in _visible(history, rules).items():
        for transaction in history.of(Transaction):
            values = [value for partition, value in transaction.values if (reading, partition) in whole]
            there = [value for value in values if value in visible]
            if there and len(there) < len(values):
                missing = next(value for value in values if value not in visible)
                text = f"{reading} was given {shown(there[0])}, and not {shown(missing)} of the same transaction"
                yield Anomaly("torn transaction", text)


def disordered(history: History, rules: Rules) -> Iterator[Anomaly]:
    """Records of one transaction in one partition are in another order than they were sent in."""
    for reading, visible in _visible(history, rules).items():
        for transaction in history.of(Transaction):
            last: dict[Partition, int] = {}
            for partition, value in transaction.values:
                record = visible.get(value)
                if record is not None:
                    if record.offset <= last.get(partition, -1):
                        text = f"{shown(value)} is at {record.offset} of {partition}, after what was sent behind it"
                        yield Anomaly("disordered transaction", f"{reading}: {text}")
                    last[partition] = record.offset


def disagreeing(history: History, rules: Rules) -> Iterator[Anomaly]:
    """Two readings at the end differ: what is committed stays, and what is not never will be."""
    first: dict[Partition, CommittedRead] = {}
    for final in _finals(history, rules):
        other = first.setdefault(final.partition, final)
        if list(other.records) != list(final.records):
            text = f"{other.process} and {final.process} of {final.partition}"
            yield Anomaly("disagreeing committed reads", f"{text}: {len(other.records)} and {len(final.records)}")


def committed_positions(history: History, rules: Rules) -> Iterator[Anomaly]:
    """A reader of committed records goes back, or is not given what is committed between two records."""
    finals = {final.partition: final for final in _finals(history, rules)}
    ranks = {
        partition: {record.offset: rank for rank, record in enumerate(final.records)}
        for partition, final in finals.items()
    }
    last: dict[tuple[str, Partition], int] = {}
    for poll in history.of(CommittedPoll):
        if poll.group is not None:
            continue
        for record in poll.records:
            before = last.get((poll.process, record.partition), -1)
            last[poll.process, record.partition] = record.offset
            if not _whole(rules, record.partition):
                continue
            text = f"{poll.process} was given {record.offset} of {record.partition} directly after {before}"
            known = ranks.get(record.partition, {})
            if record.offset <= before:
                yield Anomaly("non-monotonic committed poll", text)
            elif record.offset in known and known[record.offset] - known.get(before, -1 if before < 0 else 1 << 60) > 1:
                yield Anomaly("committed poll skip", text)


def exactly_once(history: History, rules: Rules) -> Iterator[Anomaly]:
    """A record is passed on twice, or its offset says otherwise than what was made of it."""
    if not all(
        _whole(rules, partition) for transaction in history.of(Transaction) for partition, _ in transaction.values
    ):
        return
    made: dict[bytes, tuple[str, Source]] = {
        value: (transaction.group, source)
        for transaction in history.of(Transaction)
        for value, source in transaction.sources.items()
    }
    inputs = {(read.reading, read.partition): read.records for read in _finals(history, rules)}
    offsets = {
        (look.process, look.partition): (look.group, look.offset or 0)
        for look in history.of(GroupOffset)
        if look.last and look.ok
    }
    for reading, visible in _visible(history, rules).items():
        counts = Counter(made[value] for value in visible if value in made)
        for (group, source), count in counts.items():
            if count > 1:
                text = f"{count} committed records were made of {source.partition} {source.offset}"
                yield Anomaly("passed on twice", f"{reading}: {text} by {group}")
        for (process, partition), (group, offset) in offsets.items():
            if process != reading or not _whole(rules, partition):
                continue
            for record in inputs.get((reading, partition), ()):
                count = counts[group, Source(partition, record.offset)]
                text = f"{reading}: {group} has committed {offset} of {partition}"
                if record.offset < offset and not count:
                    yield Anomaly("not passed on", f"{text}, and nothing was made of {record.offset}")
                elif record.offset >= offset and count:
                    yield Anomaly("passed on without its offset", f"{text}, and {record.offset} was passed on")


def flow_offsets(history: History, rules: Rules) -> Iterator[Anomaly]:
    """An offset is returned that no transaction has committed, or one that is behind what a transaction had committed before it was asked."""
    transactions = [transaction for transaction in history.of(Transaction) if transaction.offsets]
    for look in history.of(GroupOffset):
        if not look.ok or not _whole(rules, look.partition):
            continue
        candidates = [
            transaction
            for transaction in transactions
            if transaction.group == look.group and look.partition in transaction.offsets
        ]
        text = f"{look.process} was told: {look.describe()}"
        known = [
            transaction.offsets[look.partition]
            for transaction in candidates
            if transaction.ok and (transaction.returned or 0) < look.invoked
        ]
        if look.stable and known and max(known) > (look.offset or 0):
            yield Anomaly("lost offset", f"{text}; {max(known)} was committed before")
        if look.offset is not None and not any(
            transaction.may_count
            and transaction.offsets[look.partition] == look.offset
            and (transaction.asked or 0) < (look.returned or 0)
            for transaction in candidates
        ):
            yield Anomaly("uncommitted offset", f"{text}, which no transaction has committed")


def compacted_wrong(history: History, rules: Rules) -> Iterator[Anomaly]:
    """The newest value of a key is not what was committed last, or a deleted one is back."""
    of = {id(send): transaction for transaction in history.of(Transaction) for send in transaction.sends}
    excused = cut_for_damage(history)
    for final in history.of(CommittedRead):
        rule = rules.get(final.partition.topic, PLAIN)
        if not final.ok or not rule.compacted or not rule.durable or final.partition in excused:
            continue
        last: dict[bytes, Send] = {}
        doubtful: dict[bytes, list[Send]] = defaultdict(list)
        for send in history.of(Send):
            if send.partition != final.partition or send.key is None:
                continue
            transaction = of.get(id(send))
            if transaction is not None and not transaction.may_count:
                continue
            if (send.offset if send.ok and (transaction is None or transaction.ok) else None) is None:
                doubtful[send.key].append(send)
            elif send.key not in last or (last[send.key].offset or 0) < (send.offset or 0):
                last[send.key] = send
        newest = {record.key: record for record in final.records}
        for key, send in last.items():
            latest = newest.get(key)
            text = f"{final.process}: {shown(key)} of {final.partition} was {shown(send.value)} at {send.offset} last"
            if latest is None:
                if send.value is not None and not any(other.value is None for other in doubtful[key]):
                    yield Anomaly("compaction lost a key", f"{text}, and is not there")
            elif latest.offset < (send.offset or 0):
                if not any(other.value is None for other in doubtful[key]) or send.value is not None:
                    yield Anomaly(
                        "compaction revived a key", f"{text}, and is {shown(latest.value)} at {latest.offset}"
                    )
            elif latest.offset == send.offset and latest.value != send.value:
                yield Anomaly("compaction changed a key", f"{text}, and is {shown(latest.value)} there")
            elif latest.offset != send.offset and latest.value not in {other.value for other in doubtful[key]}:
                yield Anomaly("compaction kept what does not count", f"{text}, and is {shown(latest.value)}")


def refused(history: History, _: Rules) -> Iterator[Anomaly]:
    """A producer whose epoch tells its transactions apart hears that it is in none: the end of the last one is nothing to it, neither to
    its records nor to its offsets."""
    for transaction in history.of(Transaction):
        if transaction.older:
            continue
        if transaction.offsets and "TRANSACTION_ABORTABLE" in transaction.problem:
            yield Anomaly("transaction refused", f"{transaction.describe()}: {transaction.problem}")
        for send in transaction.sends:
            if "INVALID_TXN_STATE" in send.problem:
                yield Anomaly("transaction refused", f"{send.describe()}: {send.problem}")
                break


def stale_offsets(history: History, _: Rules) -> Iterator[Anomaly]:
    """Offsets are taken of a member of a generation that is over (KIP-447)."""
    for operation in history.of(StaleOffsets):
        if operation.ok:
            yield Anomaly("zombie offsets", operation.describe())


CHECKS: Final[tuple[Check, ...]] = (
    aborted_reads,
    lost_commits,
    torn,
    disordered,
    disagreeing,
    committed_positions,
    exactly_once,
    flow_offsets,
    stale_offsets,
    compacted_wrong,
    refused,
)
