"""What Kafka's `VerifiableProducer`, `VerifiableConsumer` and `VerifiableShareConsumer` print, as lines of a history.

Here: their command lines, and what each line means.
Not here: what happens to them.

All tell the time in milliseconds of the wall clock, when a thing is over; what was under way began after the line before it.
"""

import json
import time
from typing import Any

from tests.support.apache_kafka import java_command

MILLISECOND = 1_000_000
HEAP = ("-Xmx96m",)


def producer_command(bootstrap: str, topic: str, count: int, prefix: int) -> list[str]:
    """Writes so many values "{prefix}.{number}"."""
    arguments = (
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--max-messages",
        str(count),
        "--value-prefix",
        str(prefix),
    )
    return java_command("org.apache.kafka.tools.VerifiableProducer", *arguments, "--throughput", "2000", options=HEAP)


def consumer_command(bootstrap: str, topic: str, group: str, protocol: str) -> list[str]:
    """A member that prints each record, and commits what it was given at once."""
    session = () if protocol == "consumer" else ("--session-timeout", "4000")
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group, "--group-protocol", protocol)
    modes = ("--reset-policy", "earliest", "--verbose", *session)
    return java_command("org.apache.kafka.tools.VerifiableConsumer", *arguments, *modes, options=HEAP)


def share_consumer_command(bootstrap: str, topic: str, group: str) -> list[str]:
    """A member that prints each record, and acknowledges what it was given at once; its group begins at the first record."""
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group)
    modes = ("--offset-reset-strategy", "earliest", "--verbose", "--acknowledgement-mode", "sync")
    return java_command("org.apache.kafka.tools.VerifiableShareConsumer", *arguments, *modes, options=HEAP)


def _shared_ns(milliseconds: int) -> int:
    """A time of the wall clock as the one that all lines have."""
    return milliseconds * MILLISECOND - time.time_ns() + time.monotonic_ns()


def _line(f: str, process: str, **fields: Any) -> str:
    return json.dumps({"f": f, "process": process, **fields}) + "\n"


def _place(partition: dict[str, Any]) -> str:
    return f"{partition['topic']}-{partition['partition']}"


class ProducerLines:
    """Of one producer: each acknowledged record; `count` of them."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._begun = time.monotonic_ns()
        self.count = 0

    def __call__(self, text: str) -> str | None:
        """What a line means."""
        event = json.loads(text) if text.startswith("{") else {}
        if event.get("name") != "producer_send_success":
            return None
        self.count += 1
        at = max(_shared_ns(event["timestamp"] + 1), self._begun)
        place = {"partition": _place(event), "offset": event["offset"]}
        return _line("send", self._process, since=self._begun, at=at, value=event["value"], idempotent=False, **place)


class ConsumerLines:
    """Of one member: what it is given, loses, reads and commits; adds what it has read to `values`."""

    def __init__(self, process: str, group: str, values: set[str]) -> None:
        self._process, self._group = process, group
        self._since = time.monotonic_ns()
        self._times = 0
        self._owned: set[str] = set()
        self._read: list[list[Any]] = []
        self._asked: list[str] = []
        self._values = values

    def __call__(self, text: str) -> str | None:
        """What a line means: none, one or several."""
        event = json.loads(text) if text.startswith("{") else {}
        name = event.get("name", "")
        if name == "record_data":
            self._read.append([_place(event), event["offset"], event["value"]])
            self._values.add(event["value"])
            return None
        heard = {
            "partitions_assigned": self._given,
            "partitions_revoked": self._taken,
            "records_consumed": self._polled,
            "offsets_committed": self._committed,
        }.get(name)
        if heard is None:
            return None
        at = max(_shared_ns(event["timestamp"]), self._since)
        lines = heard(event, at)
        self._since = at
        return lines

    def _given(self, event: dict[str, Any], at: int) -> str:
        new = [_place(each) for each in event["partitions"]]
        self._owned |= set(new)
        self._times += 1
        # It does not say which generation it is in: each time counts as one of its own.
        whose = {
            "group": self._group,
            "member": self._process,
            "generation": at,
            "owned": sorted(self._owned),
            "new": new,
        }
        return _line("ownership", self._process, at=at, **whose)

    def _taken(self, event: dict[str, Any], at: int) -> str:
        gone = [_place(each) for each in event["partitions"]]
        self._owned -= set(gone)
        return _line("revoked", self._process, at=at, group=self._group, partitions=gone)

    def _polled(self, event: dict[str, Any], at: int) -> str:
        records, self._read = self._read, []
        lines = _line("poll", self._process, since=self._since, at=at, group=self._group, records=records)
        self._times += 1
        self._asked = []
        for each in event["partitions"]:
            name = f"{self._times} {_place(each)}"
            what = {"group": self._group, "partition": _place(each), "offset": each["maxOffset"] + 1}
            lines += _line("commit", self._process, at=at, event="invoke", id=name, **what)
            self._asked.append(name)
        return lines

    def _committed(self, message: dict[str, Any], at: int) -> str | None:
        # A commit that failed may have been done all the same, where the broker was killed: unknown.
        event = "ok" if message["success"] else "info"
        at += MILLISECOND
        asked, self._asked = self._asked, []
        ended = [json.dumps({"process": self._process, "id": name, "event": event, "at": at}) + "\n" for name in asked]
        return "".join(ended) or None


class ShareConsumerLines:
    """Of one member of a share group: what it is handed and acknowledges; adds what it was handed to `values`."""

    def __init__(self, process: str, group: str, values: set[str]) -> None:
        self._process, self._group, self._values = process, group, values
        self._since = time.monotonic_ns()
        self._read: list[list[Any]] = []

    def __call__(self, text: str) -> str | None:
        """What a line means: none, one or several."""
        event = json.loads(text) if text.startswith("{") else {}
        name = event.get("name", "")
        if name == "record_data":
            self._read.append([_place(event), event["offset"], event["value"]])
            self._values.add(event["value"])
            return None
        if name not in {"records_consumed", "offsets_acknowledged"}:
            return None
        since = {"group": self._group, "since": self._since, "at": max(_shared_ns(event["timestamp"] + 1), self._since)}
        # A millisecond of a clock is all of it: what comes next may have begun at its start.
        self._since = max(_shared_ns(event["timestamp"]), self._since)
        if name == "records_consumed":
            records, self._read = self._read, []
            return _line("handed", self._process, records=records, **since)
        # What failed may have been done all the same, where the broker was killed: unknown.
        outcome = "ok" if event["success"] else "info"
        return "".join(
            _line(
                "acknowledged", self._process, partition=_place(each), places=each["offsets"], outcome=outcome, **since
            )
            for each in event["partitions"]
        )
