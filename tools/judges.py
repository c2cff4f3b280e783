"""Foreign clients and tools that judge the broker: what each does in CI while it and the broker are killed.

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
    "For comparison, these ran once each on Apache Kafka 4.3.1 and found no anomaly there either: `VerifiableProducer`, `VerifiableConsumer`, "
    "franz-go and librdkafka with both protocols, aiokafka, `VerifiableShareConsumer`. `TransactionalMessageCopier`, Kafka Streams and Kafka Connect "
    "did not finish there within their time-out, on a busy machine: that broker takes longer to restart after a kill."
)
COURSE = "three members, one of them without a restart, while one leaves and two join; the broker twice"
JUDGES = (
    Judge(
        "franz-go 1.22.2 `GroupTransactSession`",
        "classic, consumer",
        "copies 100,000 records (consumer: 40,000) in transactions with their offsets; `BUSWAY_JUDGED_RECORDS` sets another number",
        COURSE,
        "test_exactly_once.py",
    ),
    Judge(
        "franz-go, on three nodes",
        "classic, consumer",
        "copies 20,000 records (consumer: 12,000) between topics with three replicas",
        "as above; two of the nodes, one after the other",
        "test_exactly_once.py",
    ),
    Judge(
        "librdkafka 2.16.0 (confluent-kafka)",
        "classic, consumer",
        "copies 20,000 records (consumer: 12,000); a process is replaced if `send_offsets_to_transaction` hangs past its time-out after the loss of its coordinator, as it does with any broker "
        "([its issue 5456](https://github.com/confluentinc/librdkafka/issues/5456))",
        COURSE,
        "test_exactly_once.py",
    ),
    Judge(
        "Java `TransactionalMessageCopier` 4.3.1",
        "classic",
        "copies 12,000 records and aborts a third of its transactions",
        COURSE,
        "test_exactly_once.py",
    ),
    Judge(
        "aiokafka 0.14",
        "assigned partitions",
        "copies 12,000 records; it sends offsets without member id and generation, so only transactional ids fence",
        "six instances; the broker twice",
        "test_exactly_once.py",
    ),
    Judge(
        "Kafka Streams 4.3.1's smoke test",
        "classic",
        "`exactly_once_v2`: each sum, count and window is exact",
        "two of four applications; the broker twice",
        "test_streams.py",
    ),
    Judge(
        "Kafka Streams' smoke test, on three nodes",
        "classic",
        "the same; all of its topics have three replicas",
        "two of four applications; two of the nodes, one after the other",
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
        "each acknowledged record exists once, at its offset",
        "one of two producers; the broker",
        "test_verifiable.py",
    ),
    Judge(
        "Java `VerifiableConsumer` 4.3.1",
        "classic, consumer",
        "reads 12,000 records and commits after each poll",
        "one of four members; the broker",
        "test_verifiable.py",
    ),
    Judge(
        "Java `VerifiableShareConsumer` 4.3.1",
        "share",
        "receives 12,000 records and acknowledges after each poll",
        "one of four members; the broker",
        "test_verifiable_share.py",
    ),
)


def table() -> str:
    """Return the section of the page."""
    rows = "".join(
        f"| {judge.name} | {judge.protocols} | {judge.does} | {judge.killed} | `{judge.test}` |\n" for judge in JUDGES
    )
    return (
        "\n## Foreign clients under kills\n\nForeign clients and tools run on the broker while they and it are killed (SIGKILL, restarted on the same "
        "data). Each run is a history. A checker counts lost, duplicated, torn, reordered and twice owned records, and aborted records that are "
        "visible: `python -m tests.support.judging FILE`. A test fails on the first anomaly. The tests are in `tests/interop/judges` and run with "
        "`make interop`; with `BUSWAY_INTEROP_BROKER=nodes` all of them run on three nodes, with `apache` on Apache Kafka 4.3.1. "
        f"{COMPARED}\n\n"
        "| judge | group protocol | does | killed | test |\n|---|---|---|---|---|\n" + rows
    )
