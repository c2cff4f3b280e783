"""Checks that foreign clients' histories need beside those of `tests.simulation`.

Here: one function for each anomaly.
Not here: those that simulated clients are judged by, too.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.simulation.checks import Anomaly, Check, Rules
from tests.simulation.history import History, Outcome, Partition, Seen, Send, shown
from tests.simulation.transaction_history import CommittedPoll, CommittedRead, Transaction
from tests.support.judging.operations import Copy, InitProducer, StableOffset

MARK: Final = b"~"
"""What a program puts behind it makes each attempt to pass a value on a value of its own."""


def origin(value: bytes | None) -> bytes:
    """What a value was made of."""
    return (value or b"").partition(MARK)[0]


def _readings(history: History) -> Mapping[str, Mapping[str, Sequence[Seen]]]:
    """Reading → topic → its committed records, partition by partition."""
    readings: dict[str, dict[str, list[Seen]]] = defaultdict(lambda: defaultdict(list))
    reads = [read for read in history.of(CommittedRead) if read.ok]
    for read in sorted(reads, key=lambda read: read.partition):
        readings[read.reading][read.partition.topic] += read.records
    return readings


def copies(history: History, _: Rules) -> Iterator[Anomaly]:
    """A copy lacks a record, has one twice, or has one that was not sent."""
    for copy in history.of(Copy):
        for reading, topics in _readings(history).items():
            if copy.source not in topics or copy.target not in topics:
                continue
            wanted = {record.value or b"" for record in topics[copy.source]}
            counts = Counter(origin(record.value) for record in topics[copy.target])
            where = f"{reading}: {copy.target}"
            for value in wanted - counts.keys():
                yield Anomaly("not copied", f"{where} lacks {shown(value)} of {copy.source}")
            for value, count in counts.items():
                if value not in wanted:
                    yield Anomaly("from nowhere", f"{where} has {shown(value)}, which {copy.source} has not")
                elif count > 1:
                    yield Anomaly("copied twice", f"{where} has {shown(value)} of {copy.source} {count} times")


def copied_out_of_order(history: History, _: Rules) -> Iterator[Anomaly]:
    """A partition's records are in another order in the copy."""
    for copy in history.of(Copy):
        for reading, topics in _readings(history).items():
            if not copy.ordered or copy.source not in topics:
                continue
            places = {record.value: (record.partition, record.offset) for record in topics[copy.source]}
            last: dict[tuple[Partition, Partition], tuple[int, bytes | None]] = {}
            for record in topics.get(copy.target, ()):
                if (place := places.get(origin(record.value))) is None:
                    continue
                before, value = last.get((place[0], record.partition), (-1, None))
                if place[1] < before:
                    text = f"{shown(record.value)} comes after {shown(value)} at {record.offset} of {record.partition}"
                    yield Anomaly("copied out of order", f"{reading}: {text}")
                last[place[0], record.partition] = (place[1], record.value)


def repeated(history: History, _: Rules) -> Iterator[Anomaly]:
    """One value of a transaction, or of an idempotent producer, stands at two offsets, or elsewhere than it was acknowledged."""
    values = {value for transaction in history.of(Transaction) for _, value in transaction.values}
    sends = {(send.partition, send.value): send for send in history.of(Send)}
    for reading, topics in _readings(history).items():
        for records in topics.values():
            known = [(each.partition, each.value) for each in records]
            counts = Counter(each for each in known if each[1] in values or (each in sends and sends[each].idempotent))
            for (_, value), count in counts.items():
                if count > 1:
                    yield Anomaly("repeated record", f"{reading}: {shown(value)} is there {count} times")
            for record in records:
                send = sends.get((record.partition, record.value))
                if send is not None and send.ok and send.offset not in (None, record.offset):
                    text = f"{shown(record.value)} is at {record.offset} of {record.partition}, acknowledged at {send.offset}"
                    yield Anomaly("inconsistent offsets", f"{reading}: {text}")


def fenced_commits(history: History, _: Rules) -> Iterator[Anomaly]:
    """A transaction is committed whose producer had been fenced before its commit was asked for."""
    takings: dict[str, list[InitProducer]] = defaultdict(list)
    for taking in history.of(InitProducer):
        if taking.ok:
            takings[taking.transactional_id].append(taking)
    for transaction in history.of(Transaction):
        if not transaction.ok:
            continue
        of_id = takings[transaction.transactional_id]
        own_earlier = [
            each for each in of_id if each.process == transaction.process and each.invoked < transaction.invoked
        ]
        for other in of_id if own_earlier else ():
            after_mine = other.process != transaction.process and other.invoked > (own_earlier[-1].returned or 0)
            if after_mine and (other.returned or 0) < (transaction.asked or 0):
                text = f"{transaction.process} commits as {transaction.transactional_id}, which {other.process} had taken over"
                yield Anomaly("fenced commit", text)
                break


def hanging(history: History, _: Rules) -> Iterator[Anomaly]:
    """A transaction is open when none may be, or what was stable is not any more."""
    highest: dict[Partition, StableOffset] = {}
    for look in history.of(StableOffset):
        if not look.ok:
            continue
        if look.last and look.stable < look.high:
            yield Anomaly("hanging transaction", f"in the end {look.describe()}")
        before = highest.setdefault(look.partition, look)
        if look.stable < before.stable and (before.returned or 0) < look.invoked:
            yield Anomaly("stable offset regress", f"{look.process}: {look.describe()}; it was {before.stable}")
        if look.stable > before.stable:
            highest[look.partition] = look


def circular(history: History, _: Rules) -> Iterator[Anomaly]:
    """Transactions that each read what another has written, in a circle, also through one being over before another began (G1c)."""
    committed = [
        transaction
        for transaction in history.of(Transaction)
        if transaction.ok or (transaction.may_count and transaction.outcome is Outcome.INFO)
    ]
    writers = {value: at for at, transaction in enumerate(committed) for _, value in transaction.values}
    values: dict[tuple[Partition, int], bytes | None] = {}
    for operation in history.operations:
        if isinstance(operation, CommittedPoll | CommittedRead):
            values.update({(record.partition, record.offset): record.value for record in operation.records})
    after: dict[int, list[int]] = defaultdict(list)
    for at, transaction in enumerate(committed):
        for source in transaction.sources.values():
            writer = writers.get(values.get((source.partition, source.offset)) or b"")
            if writer is not None and writer != at:
                after[writer].append(at)
    if not after:
        return
    _add_real_time(committed, after)
    for circle in _circles(after):
        names = [committed[at].describe() for at in circle if at < len(committed)]
        if len(names) > 1:
            yield Anomaly("circular information", " ← ".join(names[:3]))


def _add_real_time(committed: Sequence[Transaction], after: dict[int, list[int]]) -> None:
    """A chain of moments, one for each return: what was over before another was begun leads to it."""
    over = sorted(
        (transaction.returned, at)
        for at, transaction in enumerate(committed)
        if transaction.ok and transaction.returned is not None
    )
    times = [returned for returned, _ in over]
    first = len(committed)
    for place, (_, at) in enumerate(over):
        after[at].append(first + place)
        if place + 1 < len(over):
            after[first + place].append(first + place + 1)
    for at, transaction in enumerate(committed):
        place = bisect_left(times, transaction.invoked) - 1
        if place >= 0:
            after[first + place].append(at)


def _circles(after: Mapping[int, Sequence[int]]) -> Iterator[list[int]]:
    """Strongly connected components of more than one node (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    for root in list(after):
        if root in index:
            continue
        work = [(root, iter(after.get(root, ())))]
        index[root] = low[root] = len(index)
        path.append(root)
        on_path.add(root)
        while work:
            node, following = work[-1]
            for other in following:
                if other not in index:
                    index[other] = low[other] = len(index)
                    path.append(other)
                    on_path.add(other)
                    work.append((other, iter(after.get(other, ()))))
                    break
                if other in on_path:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = path.index(node) if len(path) < 3 else len(path) - 1 - path[::-1].index(node)
                    circle = path[at:]
                    del path[at:]
                    on_path.difference_update(circle)
                    if len(circle) > 1:
                        yield circle


CHECKS: Final[tuple[Check, ...]] = (
    copies,
    copied_out_of_order,
    repeated,
    fenced_commits,
    hanging,
    circular,
)
