"""`busway produce` and `busway consume`.

Here: lines ↔ records, with Avro through the registry.
Not here: tables.
"""

import asyncio
import contextlib
import datetime as dt
import difflib
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from busway.admin.admin import Admin
from busway.cli.decoding import Decoder, headers_shown
from busway.cli.logs import LogFormat, LogLevel, log_to_stderr
from busway.cli.output import (
    BOOTSTRAP,
    REGISTRY_URL,
    AsJson,
    Bootstrap,
    CommandFailed,
    RegistryUrl,
    harmless,
    run,
    write_json,
)
from busway.consumer.consumer import Consumer
from busway.producer.producer import Producer
from busway.serde.avro import AvroCodec
from busway.serde.errors import Unencodable
from busway.serde.framing import frame
from busway.serde.registry import RegistryClient
from busway.types import Record, RecordMetadata, TopicPartition

_TOGETHER: Final = 10_000
"""Limit of unacknowledged records before reading more lines."""
_CHUNK_BYTES: Final = 64 * 1024
_CHUNKS_AHEAD: Final = 4
TopicName = Annotated[str, typer.Argument(help="The topic.")]


def produce(
    topic: TopicName,
    values: Annotated[list[str] | None, typer.Argument(help="Values; by default the lines of standard input.")] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", help="Separator of key and value in a line.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="name=value; repeatable.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", help="Partition to write to.")] = None,
    avro: Annotated[
        Path | None, typer.Option("--avro", help="An Avro schema: lines are JSON, written through the registry.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    registry_url: RegistryUrl = REGISTRY_URL,
    as_json: AsJson = False,
) -> None:
    """Write records, one for each line."""
    headers = [_header(option) for option in header or ()]
    schema = avro.read_text(encoding="utf-8") if avro is not None else None
    separator = os.fsencode(key_separator) if key_separator is not None else None

    async def work() -> int:
        encode = await _encoder(topic, schema, registry_url)
        count = 0
        async with Producer(bootstrap, client_id="busway-cli") as producer:
            futures: list[asyncio.Future[RecordMetadata]] = []
            async for lines in _given(values) if values is not None else _standard_input():
                for line in lines:
                    count += 1
                    own_key, value = _split(line, separator, count) if separator is not None else (None, line)
                    if own_key is None and key is not None:
                        own_key = os.fsencode(key)
                    futures.append(
                        await producer.send(topic, encode(value, count), own_key, partition=partition, headers=headers)
                    )
                if len(futures) >= _TOGETHER:
                    await asyncio.gather(*futures)
                    futures.clear()
            await asyncio.gather(*futures)
        return count

    count = run(work())
    if as_json:
        write_json({"topic": topic, "records": count})
    else:
        sys.stderr.write(f"{count} {'record' if count == 1 else 'records'} acknowledged\n")


def _split(line: bytes, separator: bytes, number: int) -> tuple[bytes, bytes]:
    key, has_separator, value = line.partition(separator)
    if not has_separator:
        shown = line[:60].decode(errors="replace")
        raise CommandFailed(f"line {number} has no {separator.decode()!r} between key and value: {shown}")
    return key, value


async def _given(values: list[str]) -> AsyncIterator[list[bytes]]:
    yield [os.fsencode(value) for value in values]


async def _standard_input() -> AsyncIterator[list[bytes]]:
    """Yield lists of lines. A thread blocks on stdin, so that earlier lines are sent meanwhile."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[list[bytes] | None] = asyncio.Queue()
    room = threading.Semaphore(_CHUNKS_AHEAD)

    def put(lines: list[bytes] | None) -> None:
        room.acquire()
        loop.call_soon_threadsafe(queue.put_nowait, lines)

    def read() -> None:
        rest = b""
        # The loop may be closed: Ctrl-C while the thread waited.
        with contextlib.suppress(RuntimeError):
            while chunk := os.read(0, _CHUNK_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                if lines:
                    put([line.removesuffix(b"\r") for line in lines])
            put([rest] if rest else [])
            put(None)

    threading.Thread(target=read, daemon=True, name="busway-stdin").start()
    while (lines := await queue.get()) is not None:
        room.release()
        yield lines


def _header(given: str) -> tuple[str, bytes | None]:
    name, equals, value = given.partition("=")
    if not equals:
        raise CommandFailed(f"--header {given}: give name=value")
    return name, value.encode()


async def _encoder(topic: str, schema: str | None, registry_url: str) -> Any:
    if schema is None:
        return lambda line, number: line
    async with RegistryClient(registry_url) as registry:
        prefix = frame(await registry.register(f"{topic}-value", schema))
    codec: AvroCodec[Any] = AvroCodec(dict, schema=json.loads(schema))

    def encode(line: bytes, number: int) -> bytes:
        try:
            return codec.encode(json.loads(line), prefix)
        except (ValueError, Unencodable) as problem:
            raise CommandFailed(f"line {number} does not fit the schema: {problem}") from None

    return encode


def consume(
    topics: Annotated[list[str], typer.Argument(help="Topics.")],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the first record, not at the end.")
    ] = False,
    since: Annotated[
        dt.datetime | None,
        typer.Option("--since", help="Start at the first record at or after this time (local time)."),
    ] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop at the current end.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-n", help="Number of records after which to stop.")] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Read as a member of this group.")] = None,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Only committed records of transactions.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    registry_url: RegistryUrl = REGISTRY_URL,
    log_level: LogLevel = "warning",
    log_format: LogFormat = "text",
    as_json: AsJson = False,
) -> None:
    """Print the values of records, after topic and tab if there are several topics; with --json whole records."""
    if since is not None and from_beginning:
        raise CommandFailed("--since and --from-beginning name two start positions; give one")
    if group is not None and (since is not None or until_end):
        raise CommandFailed("--since and --until-end read without a group; leave --group out")
    log_to_stderr(log_level, log_format)

    async def work() -> None:
        await _check_there(bootstrap, topics)
        async with (
            RegistryClient(registry_url) as registry,
            Consumer(
                bootstrap_servers=bootstrap,
                client_id="busway-cli",
                group_id=group,
                auto_offset_reset="earliest" if from_beginning else "latest",
                isolation_level="read_committed" if read_committed else "read_uncommitted",
            ) as consumer,
        ):
            await consumer.subscribe(topics)
            reader = _Reader(registry, as_json=as_json, name_topics=len(topics) > 1)
            ends = await _begin(consumer, since, until_end=until_end)
            left = count
            while left is None or left > 0:
                if ends is not None and not await _unfinished(consumer, ends):
                    return
                for records in (await consumer.getmany(timeout_ms=500, max_records=left)).values():
                    for record in records:
                        if ends is not None and record.offset >= ends[TopicPartition(record.topic, record.partition)]:
                            continue
                        await reader.print(record)
                        left = left - 1 if left is not None else None
                sys.stdout.flush()

    run(work())


async def _check_there(bootstrap: str, topics: list[str]) -> None:
    """Refuse a missing topic: subscribing could make the broker create it."""
    async with Admin(bootstrap, client_id="busway-cli") as admin:
        there = await admin.list_topics(internal=True)
    for topic in topics:
        if topic not in there:
            close = difflib.get_close_matches(topic, there, n=1)
            hint = f"did you mean {close[0]}?" if close else f"busway topics create {topic} makes it"
            raise CommandFailed(f"topic {topic} does not exist; {hint}")


async def _begin(consumer: Consumer, since: dt.datetime | None, *, until_end: bool) -> dict[TopicPartition, int] | None:
    partitions = sorted(consumer.assignment())
    if since is not None:
        ends = await consumer.end_offsets(partitions)
        moment = int(since.timestamp() * 1000)
        for partition, first in (await consumer.offsets_for_times(dict.fromkeys(partitions, moment))).items():
            consumer.seek(partition, first.offset if first is not None else ends[partition])
    if not until_end:
        return None
    return await consumer.end_offsets(partitions)


async def _unfinished(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    return any([await consumer.position(partition) < end for partition, end in ends.items()])


class _Reader:
    def __init__(self, registry: RegistryClient, *, as_json: bool, name_topics: bool) -> None:
        self._decoder = Decoder(registry)
        self._as_json = as_json
        self._name_topics = name_topics
        self._warned = False

    async def print(self, record: Record) -> None:
        key, value = await self._decoder.decode(record.key), await self._decoder.decode(record.value)
        if self._decoder.problem is not None and not self._warned:
            self._warned = True
            sys.stderr.write(f"busway: keys and values in Avro are shown as they came: {self._decoder.problem}\n")
        if self._name_topics and not self._as_json:
            typer.echo(f"{record.topic}\t", nl=False)
        if self._as_json:
            write_json(
                {
                    "topic": record.topic,
                    "partition": record.partition,
                    "offset": record.offset,
                    "timestamp": record.timestamp_ms,
                    "key": key,
                    "value": value,
                    "headers": headers_shown(record.headers),
                }
            )
        elif isinstance(value, str):
            typer.echo(harmless(value) if sys.stdout.isatty() else value)
        else:
            write_json(value)
