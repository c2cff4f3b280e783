"""Histories as lines of JSON, which programs in any language write.

Here: the format, both ways.
Not here: operations (`tests.simulation.history`), judgement.

A line is an object. `f` names the operation, as its class in lower case: `send`, `transaction`, `committed_read` …; `process` who does it;
the other fields are the operation's. A partition is "topic-3". A record is [partition, offset, value]. In a transaction, a value is
[partition, value] or [partition, value, "topic-3@17"] with the record that it was made of.

`event` says what the line tells: `invoke`, later `asked` (a commit is asked for), then `ok`, `fail` or `info`, joined by `process` and
`id`; what is never answered is `info`. Without `event` the line is a whole operation that is done, or what `outcome` says; where `since` is given, it began then.
`at` (and `since`) is a time that all processes share, in nanoseconds: CLOCK_MONOTONIC. Lines without are taken in the order in which they
stand. A value "p#1" stands for the one that `value_of` makes for process p, number 1 and the partition.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, Final

from tests.simulation import history as operations
from tests.simulation import transaction_history as transactions
from tests.simulation.history import History, Operation, Outcome, Partition, Seen, value_of
from tests.simulation.transaction_history import Source
from tests.support.judging import operations as own

KINDS: Final[Mapping[str, type[Operation]]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind
    for kind in (
        operations.Send,
        operations.Poll,
        operations.FinalRead,
        operations.EndOffset,
        operations.Commit,
        operations.Committed,
        operations.Ownership,
        operations.Revoked,
        operations.Happening,
        transactions.Transaction,
        transactions.CommittedPoll,
        transactions.CommittedRead,
        transactions.GroupOffset,
        transactions.StaleOffsets,
        own.InitProducer,
        own.StableOffset,
        own.Copy,
        own.Handed,
        own.Acknowledged,
        own.QueueDone,
    )
}
"""The operations by the name that lines give them."""
_NAMES: Final = {kind: frozenset(field.name for field in fields(kind)) for kind in KINDS.values()}
_FRAME: Final = frozenset({"f", "process", "event", "id", "at", "since", "outcome", "problem"})
_SHORT: Final = re.compile(r"(\w+)#(\d+)")
NANOSECONDS: Final = 1e6
"""In the milliseconds of a history."""


class BadLine(ValueError):
    """A line that is no part of a history; says which, and what is wrong with it."""


def line(f: str, process: str, **fields: Any) -> str:
    """One line, at this moment."""
    return json.dumps({"f": f, "process": process, "at": time.monotonic_ns(), **fields}, separators=(",", ":")) + "\n"


def read(lines: Iterable[str]) -> History:
    """The history that lines tell.

    Raises:
        BadLine: one is not in the format.
    """
    history = History()
    open_: dict[tuple[str, object], Operation] = {}
    for at_ns, number, entry in _events(lines):
        history.now_ms = lambda at_ns=at_ns: at_ns / NANOSECONDS  # type: ignore[misc]
        try:
            _take(history, entry, open_)
        except (KeyError, TypeError, ValueError, IndexError) as problem:
            raise BadLine(f"line {number}: {type(problem).__name__}: {problem}") from None
    return history


def _events(lines: Iterable[str]) -> list[tuple[float, int, dict[str, Any]]]:
    """Everything that happened, in order: a line with `since` is two events."""
    events: list[tuple[float, int, dict[str, Any]]] = []
    last = 0.0
    for number, text in enumerate(lines, 1):
        if not text.strip() or text.startswith("#"):
            continue
        try:
            entry = json.loads(text)
        except ValueError as problem:
            raise BadLine(f"line {number} is no JSON: {problem}") from None
        if not isinstance(entry, dict) or not isinstance(entry.get("process"), str):
            raise BadLine(f"line {number} is no object with a process: {text.strip()[:80]}")
        try:
            last = float(entry.get("at", last))
            since = float(entry.get("since", last))
        except (TypeError, ValueError):
            raise BadLine(f"line {number} has a time that is no number") from None
        if "since" in entry:
            frame = {"process": entry["process"], "id": ("line", number)}
            events.append((since, number, {**entry, **frame, "event": "invoke"}))
            events.append(
                (last, number, {**frame, "event": entry.get("outcome", "ok"), "problem": entry.get("problem", "")})
            )
        else:
            events.append((last, number, entry))
    return sorted(events, key=lambda event: event[0])  # stable: lines of one moment stay in their order


def _take(history: History, entry: dict[str, Any], open_: dict[tuple[str, object], Operation]) -> None:
    event = entry.get("event", "whole")
    known = (entry["process"], entry.get("id"))
    if event in {"whole", "invoke"}:
        operation = history.begin(_operation(entry))
        if event == "invoke":
            open_[known] = operation
        else:
            if isinstance(operation, transactions.Transaction) and entry.get("outcome") != "fail":
                operation.asked = history.mark()
            history.end(operation, Outcome(entry.get("outcome", "ok")), entry.get("problem", ""))
    elif event == "asked":
        operation = open_[known]
        if not isinstance(operation, transactions.Transaction):
            raise ValueError("only of a transaction a commit is asked for")
        operation.asked = history.mark()
    else:
        operation = open_.pop(known)
        later = _given({name: value for name, value in entry.items() if name not in _FRAME}, type(operation))
        for name, value in later.items():
            setattr(operation, name, value)
        history.end(operation, Outcome(event), entry.get("problem", ""))


def _operation(entry: dict[str, Any]) -> Operation:
    if entry["f"] not in KINDS:
        raise ValueError(f"there is no operation {entry['f']!r}: {', '.join(KINDS)}")
    kind = KINDS[entry["f"]]
    given = {name: value for name, value in entry.items() if name not in _FRAME}
    return kind(process=entry["process"], **_given(given, kind))


def _given(entry: dict[str, Any], kind: type[Operation]) -> dict[str, Any]:
    known = _NAMES[kind]
    for name in entry:
        if name not in known:
            raise ValueError(f"{kind.__name__} has no {name!r}: {', '.join(sorted(known))}")
    made = {name: _FIELDS[name](value) if name in _FIELDS else value for name, value in entry.items()}
    if isinstance(made.get("value"), str):
        made["value"] = _value(made["value"], made["partition"])
    if kind is transactions.Transaction and "values" in entry:
        texts = [(_partition(each[0]), *each[1:]) for each in entry.get("values", ())]
        made["values"] = [(partition, _value(text, partition)) for partition, text, *_ in texts]
        made["sources"] = {_value(each[1], each[0]): _source(each[2]) for each in texts if len(each) > len(("", ""))}
    return made


@lru_cache(maxsize=10_000)
def _partition(text: str) -> Partition:
    topic, _, number = text.rpartition("-")
    return Partition(topic, int(number))


def _source(text: str) -> Source:
    partition, _, offset = text.rpartition("@")
    return Source(_partition(partition), int(offset))


def _value(text: str | None, partition: Partition) -> bytes | None:
    if text is None:
        return None
    short = _SHORT.fullmatch(text) if "#" in text else None
    return value_of(short[1], int(short[2]), partition) if short else text.encode()


def _record(each: list[Any]) -> Seen:
    partition = _partition(each[0])
    return Seen(partition, int(each[1]), _value(each[2], partition))


_FIELDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "partition": _partition,
    "records": lambda records: [_record(each) for each in records],
    "owned": lambda names: frozenset(map(_partition, names)),
    "new": lambda names: frozenset(map(_partition, names)),
    "partitions": lambda names: frozenset(map(_partition, names)),
    "offsets": lambda offsets: {_partition(name): int(offset) for name, offset in offsets.items()},
    "key": lambda key: None if key is None else key.encode(),
}


def whole_lines(text: str) -> Iterator[str]:
    """The lines of what a process wrote before it was killed: the last may be a half one."""
    yield from text[: text.rfind("\n") + 1].splitlines(keepends=True)
