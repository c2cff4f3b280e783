"""Who judges the broker: clients and tools that others have written, and what each does in CI while it and the broker are killed.

Here: the rows of a table in docs/COMPATIBILITY.md.
Not here: the tests that each row names.
"""

from typing import NamedTuple


class Judge(NamedTuple):
    """One row."""

    name: str
    protocols: str
    does: str
    killed: str
    test: str


COMPARED = (
    "On Apache Kafka 4.3.1 itself these were run for comparison, each once, and found nothing wrong either: `VerifiableProducer`, `VerifiableConsumer`, "
    "franz-go and librdkafka with both protocols, aiokafka, `VerifiableShareConsumer`. `TransactionalMessageCopier`, Kafka Streams and Kafka Connect "
    "were not through when their time was over, on a machine that others worked on: after its kill that broker takes longer to come back."
)
COURSE = "three members, one of them for good, while one leaves and two come; the broker twice"
JUDGES = (
    Judge(
        "franz-go 1.22.2 `GroupTransactSession`",
        "classic, consumer",
        "passes on 100,000 records (consumer: 40,000) in transactions with their offsets; `BUSWAY_JUDGED_RECORDS` sets another number",
        COURSE,
        "test_exactly_once.py",
    ),
    Judge(
        "librdkafka 2.16.0 (confluent-kafka)",
        "classic, consumer",
        "passes on 20,000 records (consumer: 12,000); where `send_offsets_to_transaction` hangs past its time-out when its coordinator goes away, with any broker "
        "([its issue 5456](https://github.com/confluentinc/librdkafka/issues/5456)), it is ended and replaced",
        COURSE,
        "test_exactly_once.py",
    ),
    Judge(
        "Java `TransactionalMessageCopier` 4.3.1",
        "classic",
        "passes on 12,000 records, and aborts a third of its transactions",
        COURSE,
        "test_exactly_once.py",
    ),
    Judge(
        "aiokafka 0.14",
        "partitions of its own",
        "passes on 12,000 records; it sends offsets without saying which member it is, so ids alone fence",
        "six instances; the broker twice",
        "test_exactly_once.py",
    ),
    Judge(
        "Kafka Streams 4.3.1's smoke test",
        "classic",
        "`exactly_once_v2`: each sum, count and window right to the record",
        "two of four applications; the broker",
        "test_streams.py",
    ),
    Judge(
        "Java Kafka Connect 4.3.1",
        "classic",
        "exactly-once source (KIP-618): 12,000 lines of a file",
        "the worker; the broker",
        "test_java_connect.py",
    ),
    Judge(
        "Java `VerifiableProducer` 4.3.1",
        "",
        "what was acknowledged is there once, at its offset",
        "one of two producers; the broker",
        "test_verifiable.py",
    ),
    Judge(
        "Java `VerifiableConsumer` 4.3.1",
        "classic, consumer",
        "reads 12,000 records, commits each poll",
        "one of four members; the broker",
        "test_verifiable.py",
    ),
    Judge(
        "Java `VerifiableShareConsumer` 4.3.1",
        "share",
        "is handed 12,000 records, acknowledges each poll",
        "one of four members; the broker",
        "test_verifiable_share.py",
    ),
)


def table() -> str:
    """The section of the page."""
    rows = "".join(
        f"| {judge.name} | {judge.protocols} | {judge.does} | {judge.killed} | `{judge.test}` |\n" for judge in JUDGES
    )
    return (
        "\n## Judges\n\nClients and tools that others have written work on the broker while they and it are killed (SIGKILL, started again on the same "
        "data). Each run is a history, and one checker counts what is lost, duplicated, aborted and visible, torn, reordered or owned twice: "
        "`python -m tests.support.judging FILE`. A test fails on the first. They are in `tests/interop/judges` and run with `make interop`; with "
        "`BUSWAY_INTEROP_BROKER=apache` they judge Apache Kafka 4.3.1 instead. "
        f"{COMPARED}\n\n"
        "| judge | group protocol | does | killed | test |\n|---|---|---|---|---|\n" + rows
    )
