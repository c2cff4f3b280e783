"""The frame of a job: arguments, session, checks before a JVM starts, errors as one line.

Here: common parts of every `main`.
Not here: a job's rows, its `transform(df) -> df`.

    def main(argv: list[str] | None = None) -> int:
        return run_job("surge", __doc__, argv, work, topics=lambda given: ["positions"])

    def work(job: Job) -> None:
        job.run(lambda: [job.store(transform(job.stream("positions")), "surge")], topics=["positions"])
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

try:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
except ImportError as missing:
    raise SystemExit(f"{missing}: pip install 'busway[spark]'") from None

from busway import Admin, BuswayError, SecurityOptions
from busway.security.properties import is_secret
from busway_spark.errors import explain
from busway_spark.java_options import java_options
from busway_spark.keys import key_schemas, key_text
from busway_spark.lag import LagListener
from busway_spark.schemas import schemas_of
from busway_spark.security import checking_security, options_of_file
from busway_spark.session import session
from busway_spark.store import EVERY_5_S, FORMATS, Format, realtime, to_store
from busway_spark.supervise import run_stream
from busway_spark.topics import DEFAULT_SOURCE, SOURCES, Source, read_topic, stream_topic

REALTIME: Final = "realtime"
MICRO_BATCH: Final = "micro-batch"
_LOG_LEVELS: Final = ("debug", "info", "warn", "error", "fatal")


class TooFewSlots(BuswayError):
    """Real-Time Mode holds a task slot for each partition; the text has the number of slots."""


class Job:
    """A running job: session and applied arguments.

    Args:
        given: parsed arguments, including the job's own.
    """

    def __init__(self, spark: SparkSession, given: argparse.Namespace) -> None:
        self.spark = spark
        self.given = given
        self.format: Format = given.format
        # Text: a Path would merge the slashes of a URL.
        self._out = given.out.rstrip("/")
        self._checkpoints = (given.checkpoint or f"{self._out}/_checkpoints").rstrip("/")
        self._missing: frozenset[int] = frozenset()
        self._kafka_options = kafka_options(given)
        # Security alone, from a file, leaves the choice of the source as it is.
        self._source: Source = given.source or ("kafka" if given.kafka_option else DEFAULT_SOURCE)

    def place(self, name: str) -> str:
        """Return folder or URL of a table: `OUT/<name>`."""
        return f"{self._out}/{name}"

    def checkpoint(self, name: str) -> str:
        return f"{self._checkpoints}/{name}"

    @property
    def trigger(self) -> dict[str, Any]:
        """Return the trigger: every 5 seconds, or once with `--until-end`."""
        return {"availableNow": True} if self.given.until_end else dict(EVERY_5_S)

    def read(self, topic: str, **options: Any) -> DataFrame:
        return read_topic(self.spark, topic, **(self._servers() | options))

    def stream(self, topic: str, **options: Any) -> DataFrame:
        """Call `stream_topic` on the given servers, inside the function passed to `run`."""
        return stream_topic(self.spark, topic, **({"missing_ids": self._missing} | self._servers() | options))

    def key_text(self, topic: str) -> Column:
        """Return a topic's keys as text, see `keys.key_text`; for the function passed to `run`."""
        return key_text(key_schemas(self.given.registry, topic), missing_ids=self._missing)

    def store(self, frame: DataFrame, name: str, **options: Any) -> StreamingQuery | None:
        """Call `to_store` into `OUT/<name>`, with a checkpoint of that name."""
        checkpoint = self.checkpoint(name)
        given = {"format": self.format, "checkpoint": checkpoint, "trigger": self.trigger, "name": name} | options
        return to_store(frame, self.place(name), **given)

    def publish(self, rows: DataFrame, topic: str, name: str, *, reads: Sequence[str]) -> StreamingQuery:
        """Write the columns `key` and `value` to a topic, at least once. Delay is minimal, see `add_mode`.

        Args:
            rows: stateless, from Spark's Kafka source.
            topic: must exist.
            name: of query and checkpoint.
            reads: source topics of `rows`.

        Raises:
            TooFewSlots: Real-Time Mode needs more tasks than a local master has.
        """
        writer = rows.writeStream.format("kafka").queryName(name).option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", self.given.bootstrap_servers).options(
            **java_options(self._kafka_options)
        )
        writer = writer.option("checkpointLocation", self.checkpoint(name))
        if self.given.until_end:
            return writer.trigger(availableNow=True).start()
        if self.given.mode == MICRO_BATCH:
            return writer.trigger(processingTime="0 seconds").start()
        security = checking_security(self._kafka_options)
        partitions = asyncio.run(_partitions(self.given.bootstrap_servers, reads, security))
        context = self.spark.sparkContext
        if context.master.startswith("local") and partitions > context.defaultParallelism:
            raise TooFewSlots(
                f"Real-Time Mode holds a task slot for each of the {partitions} partitions of {', '.join(reads)}, but "
                f"{context.master} has {context.defaultParallelism}: give --master 'local[{partitions}]', or --mode {MICRO_BATCH}"
            )
        return realtime(writer).start()

    def run(
        self, start: Callable[[], Iterable[StreamingQuery | None]], *, topics: Sequence[str], subject: str | None = None
    ) -> list[StreamingQuery]:
        """Run streams until they end; rebuild them when a topic gets an event with a new schema.

        Args:
            subject: of their values' schemas; by default each topic's.

        Raises:
            StreamFailed: a query failed; the text has the reason.
        """

        def build(missing: frozenset[int]) -> Iterable[StreamingQuery]:
            self._missing = missing
            return [query for query in start() if query is not None]

        registry = self.given.registry

        def known() -> set[int]:
            return {
                schema_id
                for name in topics
                for schema_id in (*schemas_of(registry, name, subject=subject).ids, *key_schemas(registry, name))
            }

        return run_stream(build, known_ids=known)

    def _servers(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.given.bootstrap_servers,
            "schema_registry": self.given.registry,
            "source": self._source,
            "kafka_options": self._kafka_options,
        }


def arguments(name: str, description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False, prog=name, description=(description or "").partition("\n")[0])
    environ = os.environ.get
    servers = environ("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092")
    parser.add_argument("-b", "--bootstrap-servers", default=servers, help="brokers, host:port with commas")
    registry = environ("BUSWAY_SCHEMA_REGISTRY", "http://localhost:8081")
    parser.add_argument("-r", "--registry", default=registry, help="address of the schema registry")
    parser.add_argument(
        "--source", choices=SOURCES, help="the source: Busway's, or Spark's Kafka source; default busway"
    )
    parser.add_argument(
        "--kafka-option",
        action="append",
        type=_named,
        default=[],
        metavar="NAME=VALUE",
        help="an option of Spark's Kafka source, such as kafka.client.id=offload; repeatable",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="properties file of a Java client: TLS and SASL of all connections to brokers; default $BUSWAY_COMMAND_CONFIG",
    )
    parser.add_argument(
        "--conf",
        action="append",
        type=_named,
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark; repeatable",
    )
    parser.add_argument("--master", help="Spark master URL; default local[2], or the one of spark-submit")
    parser.add_argument("--out", default="store", help="folder or URL of the analytics store")
    parser.add_argument("--format", default=FORMATS[0], choices=FORMATS, help="format of the store's tables")
    parser.add_argument("--checkpoint", help="folder of the checkpoints; default OUT/_checkpoints")
    parser.add_argument("--until-end", action="store_true", help="stop at the current end of the topics")
    parser.add_argument(
        "--log-level", default="fatal", choices=_LOG_LEVELS, help="log level of Spark, which logs Java stacks"
    )
    parser.add_argument("--metrics-port", type=int, help="port that serves the lag for Prometheus")
    return parser


def _named(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: give NAME=VALUE")
    if is_secret(name, value):
        raise argparse.ArgumentTypeError(
            f"{name}: every user of this machine can read arguments; put it into the file of --command-config"
        )
    return name, value


def kafka_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the options for connections to brokers: those of the file, below those of the command line.

    Raises:
        BadProperties: the file cannot be read.
    """
    return options_of_file(given.command_config) | dict(given.kafka_option)


def add_mode(parser: argparse.ArgumentParser) -> None:
    """Add `--mode` for stateless jobs, which allow Real-Time Mode."""
    parser.add_argument(
        "--mode",
        default=REALTIME,
        choices=(REALTIME, MICRO_BATCH),
        help="Real-Time Mode, or micro-batches (always with --until-end); default realtime",
    )


def run_job(
    name: str,
    description: str | None,
    argv: Sequence[str] | None,
    work: Callable[[Job], None],
    *,
    topics: Callable[[argparse.Namespace], Sequence[str]],
    add_arguments: Callable[[argparse.ArgumentParser], None] | None = None,
    subject: Callable[[argparse.Namespace], str | None] = lambda given: None,
) -> int:
    """Run a job from its command line; return 0, or 1 with the reason in one line on stderr.

    Args:
        name: for Spark's user interface, and the usage.
        description: the job module's docstring; its first line is displayed.
        argv: without the program's name; by default the process's.
        topics: must exist with a schema; checked before a JVM starts.
        subject: of the values' schemas, if not `<topic>-value`.
    """
    parser = arguments(name, description)
    if add_arguments is not None:
        add_arguments(parser)
    given = parser.parse_args(argv)
    try:
        if (security := checking_security(kafka_options(given))) is not None:
            asyncio.run(_check_topics(given.bootstrap_servers, topics(given), security))
        for topic in topics(given):
            schemas_of(given.registry, topic, subject=subject(given))
        quiet = {"spark.log.level": given.log_level.upper(), **dict(given.conf)}
        spark = session(name, master=given.master, delta=given.format == "delta", settings=quiet)
        listener = LagListener(port=given.metrics_port) if given.metrics_port is not None else None
        if listener is not None:
            spark.streams.addListener(listener)
        try:
            work(Job(spark, given))
        finally:
            if listener is not None:
                spark.streams.removeListener(listener)
    except (BuswayError, ValueError) as problem:
        sys.stderr.write(f"{name}: {problem}\n")
        return 1
    except (PySparkException, Py4JJavaError) as problem:
        sys.stderr.write(f"{name}: {explain(problem)}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


async def _partitions(bootstrap_servers: str, topics: Sequence[str], security: SecurityOptions | None) -> int:
    async with Admin(bootstrap_servers, security=security) as admin:
        return sum(len(topic.partitions) for topic in (await admin.describe_topics(topics)).values())


async def _check_topics(bootstrap_servers: str, topics: Sequence[str], security: SecurityOptions) -> None:
    async with Admin(bootstrap_servers, security=security) as admin:
        await admin.describe_topics(topics)
