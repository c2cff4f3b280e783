"""The foreign clients, all behind one interface.

Here: how each client is started and what its output means.
Not here: what is asked of them (`test_clients`).

The clients that are libraries have a program each, which takes
- `version`
- `produce BOOTSTRAP TOPIC CODEC`: writes the records on standard input, one JSON object a line with key, value and headers, and
  ends with 0 once all are acknowledged;
- `read BOOTSTRAP GROUP COUNT TOPIC...`: reads so many records as a group of one, commits, leaves and ends;
- `member BOOTSTRAP TOPIC GROUP`: reads and commits as one member of a group until it is killed;
- `since BOOTSTRAP TOPIC TIMESTAMP`: the first record of partition 0 at or after a time;
and prints each record it reads as a line of JSON. A member's session is `BUSWAY_INTEROP_SESSION_MS` long, 3,000 ms if that is not set; its
heartbeat interval is a tenth of it, 3 s at most. kcat and Kafka's console tools get the same as their own options.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tools import install_foreign
from tools.jars import kafka_libs

from tests.support.apache_kafka import java, java_command
from tests.support.patience import patient

HERE = Path(__file__).resolve().parent
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_SECONDS = patient(60.0)
SESSION_VARIABLE = "BUSWAY_INTEROP_SESSION_MS"
"""In the environment of a member: how long its session is."""
LONG_SESSION_MS = 45_000
"""The default of most clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A record as it was handed to a client."""

    key: str
    value: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen(Written):
    """A record as a client read it."""

    partition: int
    offset: int
    timestamp: int


class Client(Protocol):
    """A client under test."""

    name: str
    codecs: tuple[str, ...]

    def version(self) -> str:
        """What runs here."""

    def produce(self, bootstrap: str, topic: str, codec: str, records: Sequence[Written]) -> None:
        """Write the records; all are acknowledged when it returns."""

    def read(self, bootstrap: str, group: str, count: int, topics: Sequence[str]) -> list[Seen]:
        """Read so many records as a group of one that commits and leaves."""

    def member_command(self, bootstrap: str, topic: str, group: str) -> list[str]:
        """The command line of one member of a group, which runs until killed."""

    def seen(self, line: str) -> Seen | None:
        """The record in one line of a member's output; None for a line of another kind."""

    def since(self, bootstrap: str, topic: str, timestamp: int) -> Seen:
        """The first record of partition 0 at or after a time."""

    def environment(self) -> dict[str, str]:
        """The environment its processes need."""


def run(command: Sequence[str], environment: Mapping[str, str], stdin: str = "") -> str:
    """The standard output of a command that must succeed."""
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, env=environment
    )
    assert done.returncode == 0, (
        f"{command} ended with {done.returncode}:\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
    )
    return done.stdout


class Program:
    """A library, driven by a program of ours."""

    codecs: tuple[str, ...] = CODECS

    def __init__(self, name: str) -> None:
        self.name = name

    def command(self) -> list[str]:
        """How the program is started."""
        return [sys.executable, "-m", f"tests.interop.programs.with_{self.name.replace('-', '_')}"]

    def environment(self) -> dict[str, str]:
        """Ours."""
        return dict(os.environ)

    def _run(self, *arguments: str, stdin: str = "") -> str:
        return run([*self.command(), *arguments], self.environment(), stdin)

    def version(self) -> str:
        """As the library says."""
        return self._run("version").strip()

    def produce(self, bootstrap: str, topic: str, codec: str, records: Sequence[Written]) -> None:
        """As `Client.produce`."""
        lines = [
            json.dumps({"key": record.key, "value": record.value, "headers": record.headers}) + "\n"
            for record in records
        ]
        self._run("produce", bootstrap, topic, codec, stdin="".join(lines))

    def read(self, bootstrap: str, group: str, count: int, topics: Sequence[str]) -> list[Seen]:
        """As `Client.read`."""
        output = self._run("read", bootstrap, group, str(count), *topics)
        return [record for line in output.splitlines() if (record := self.seen(line))]

    def member_command(self, bootstrap: str, topic: str, group: str) -> list[str]:
        """As `Client.member_command`."""
        return [*self.command(), "member", bootstrap, topic, group]

    def seen(self, line: str) -> Seen | None:
        """As `Client.seen`."""
        return Seen(**json.loads(line))

    def since(self, bootstrap: str, topic: str, timestamp: int) -> Seen:
        """As `Client.since`."""
        (record,) = map(self.seen, self._run("since", bootstrap, topic, str(timestamp)).splitlines())
        assert record is not None
        return record


class FranzGo(Program):
    """franz-go, through a Go program that the suite builds."""

    def command(self) -> list[str]:
        """The program; built on first use."""
        return [str(install_foreign.franz_go())]


class Sarama(Program):
    """sarama, through a Go program that the suite builds; it is a member of a group, and nothing else."""

    def command(self) -> list[str]:
        """Return the program; built on first use."""
        return [str(install_foreign.sarama())]


class KafkaJs(Program):
    """kafkajs, through a Node script."""

    def command(self) -> list[str]:
        """The script."""
        return [install_foreign.need("node"), str(HERE / "kafkajs" / "client.js")]

    def environment(self) -> dict[str, str]:
        """Ours, and where its packages are."""
        return {**os.environ, "NODE_PATH": str(install_foreign.kafkajs())}


class Kcat:
    """kcat, a command-line client on librdkafka."""

    name = "kcat"
    codecs: tuple[str, ...] = CODECS

    def _run(self, *arguments: str, stdin: str = "") -> str:
        return run([install_foreign.need("kcat"), "-q", *arguments], self.environment(), stdin)

    def environment(self) -> dict[str, str]:
        """Ours."""
        return dict(os.environ)

    def version(self) -> str:
        """As `kcat -V` says."""
        return self._run("-V").split("Version ")[1].split()[0]

    def produce(self, bootstrap: str, topic: str, codec: str, records: Sequence[Written]) -> None:
        """Keys before a tab; headers are the same for a whole run of kcat."""
        headers = [argument for name, value in records[0].headers.items() for argument in ("-H", f"{name}={value}")]
        assert all(record.headers == records[0].headers for record in records)
        lines = "".join(f"{record.key}\t{record.value}\n" for record in records)
        self._run("-P", "-b", bootstrap, "-t", topic, "-K", "\t", "-z", codec, *headers, stdin=lines)

    def _group(self, bootstrap: str, group: str) -> list[str]:
        settings = {"auto.offset.reset": "earliest", "session.timeout.ms": "3000", "heartbeat.interval.ms": "300"}
        options = [argument for name, value in settings.items() for argument in ("-X", f"{name}={value}")]
        return ["-b", bootstrap, "-u", "-J", *options, "-G", group]

    def read(self, bootstrap: str, group: str, count: int, topics: Sequence[str]) -> list[Seen]:
        """A balanced consumer that ends after so many records."""
        output = self._run("-c", str(count), *self._group(bootstrap, group), *topics)
        return [record for line in output.splitlines() if (record := self.seen(line))]

    def member_command(self, bootstrap: str, topic: str, group: str) -> list[str]:
        """A balanced consumer."""
        return [install_foreign.need("kcat"), "-q", *self._group(bootstrap, group), topic]

    def seen(self, line: str) -> Seen | None:
        """From kcat's JSON envelope, in which headers are a flat list."""
        message = json.loads(line)
        flat = message.get("headers", [])
        return Seen(
            key=message["key"],
            value=message["payload"],
            headers=dict(zip(flat[::2], flat[1::2], strict=True)),
            partition=message["partition"],
            offset=message["offset"],
            timestamp=message["ts"],
        )

    def since(self, bootstrap: str, topic: str, timestamp: int) -> Seen:
        """Start at a time, end after one record."""
        where = ["-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", f"s@{timestamp}", "-c", "1", "-J"]
        record = self.seen(self._run(*where))
        assert record is not None
        return record


class JavaConsole:
    """kafka-console-producer and kafka-console-consumer: the Java client itself."""

    name = "java"
    codecs: tuple[str, ...] = CODECS
    _PARTS = ("timestamp", "partition", "offset", "headers", "key", "value")

    def environment(self) -> dict[str, str]:
        """Ours."""
        return dict(os.environ)

    def version(self) -> str:
        """The one of its jar."""
        (jar,) = kafka_libs().glob("kafka-clients-*.jar")
        return jar.stem.removeprefix("kafka-clients-")

    def produce(self, bootstrap: str, topic: str, codec: str, records: Sequence[Written]) -> None:
        """Headers, key and value with tabs between."""
        lines = ""
        for record in records:
            headers = ",".join(f"{name}:{value}" for name, value in record.headers.items())
            lines += f"{headers}\t{record.key}\t{record.value}\n"
        parsing = ["--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"]
        where = ["--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec]
        java("org.apache.kafka.tools.ConsoleProducer", *where, *parsing, stdin=lines)

    def _consumer(self, bootstrap: str, *arguments: str) -> list[str]:
        shown = [argument for part in self._PARTS for argument in ("--formatter-property", f"print.{part}=true")]
        return ["--bootstrap-server", bootstrap, *shown, "--formatter-property", "key.separator=\t", *arguments]

    def _settings(self) -> list[str]:
        session_ms = int(os.environ.get(SESSION_VARIABLE, "3000"))
        settings = (f"session.timeout.ms={session_ms}", f"heartbeat.interval.ms={min(session_ms // 10, 3000)}")
        return [argument for setting in settings for argument in ("--command-property", setting)]

    def _consume(self, bootstrap: str, *arguments: str) -> list[Seen]:
        output = java("org.apache.kafka.tools.consumer.ConsoleConsumer", *self._consumer(bootstrap, *arguments))
        return [record for line in output.splitlines() if (record := self.seen(line))]

    def read(self, bootstrap: str, group: str, count: int, topics: Sequence[str]) -> list[Seen]:
        """The topics as one pattern."""
        which = ["--include", "|".join(topics), "--from-beginning", "--max-messages", str(count)]
        return self._consume(bootstrap, "--group", group, *which)

    def member_command(self, bootstrap: str, topic: str, group: str) -> list[str]:
        """A console consumer."""
        which = ["--topic", topic, "--group", group, "--from-beginning", *self._settings()]
        arguments = self._consumer(bootstrap, *which)
        return java_command("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments, options=("-Xmx128m",))

    def seen(self, line: str) -> Seen | None:
        """From the line of the default formatter."""
        if not line.startswith("CreateTime:"):
            return None
        timestamp, partition, offset, headers, key, value = line.split("\t")
        return Seen(
            key=key,
            value=value,
            headers=dict(header.split(":") for header in headers.split(",")),
            partition=int(partition.split(":")[1]),
            offset=int(offset.split(":")[1]),
            timestamp=int(timestamp.split(":")[1]),
        )

    def since(self, bootstrap: str, topic: str, timestamp: int) -> Seen:
        """kafka-get-offsets finds the offset of the time, the console consumer reads there."""
        asked = ["--bootstrap-server", bootstrap, "--topic-partitions", f"{topic}:0", "--time", str(timestamp)]
        (line,) = java("org.apache.kafka.tools.GetOffsetShell", *asked).splitlines()
        offset = line.rsplit(":", 1)[1]
        where = ["--topic", topic, "--partition", "0", "--offset", offset, "--max-messages", "1"]
        (record,) = self._consume(bootstrap, *where)
        return record


CLIENTS: tuple[Client, ...] = (
    JavaConsole(),
    Program("librdkafka"),
    Kcat(),
    Program("aiokafka"),
    Program("kafka-python"),
    FranzGo("franz-go"),
    KafkaJs("kafkajs"),
)
