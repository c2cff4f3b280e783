"""Every foreign client: produce and read back in every codec, a group of three that loses a member, seek by time."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tools.jars import ToolMissing

from busway_protocol.records.batch import iter_batches
from tests.interop.broker import Broker
from tests.interop.client_report import ClientReport
from tests.interop.clients import CLIENTS, CODECS, Client, Written
from tests.interop.members import group_of
from tests.support.patience import patient

pytestmark = [pytest.mark.foreign, pytest.mark.slow]
RECORDS = 20
GROUP_RECORDS = 300
BASE = 1_700_000_000_000
ASKS_FOR_NONE = frozenset({"franz-go"})
"""Clients that never ask for a topic to be made, unless configured to."""
NO_COORDINATOR = {
    confluent_kafka.KafkaError.NOT_COORDINATOR,
    confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes a client runs with each."""
    if "client" in metafunc.fixturenames:
        marks = {"java": [pytest.mark.java]}
        metafunc.parametrize(
            "client", [pytest.param(client, id=client.name, marks=marks.get(client.name, [])) for client in CLIENTS]
        )


@pytest.fixture(scope="session")
def versions() -> dict[str, str]:
    """Client -> version, as far as asked."""
    return {}


@pytest.fixture
def version(client: Client, versions: dict[str, str]) -> str:
    """The version of the client under test."""
    if client.name not in versions:
        versions[client.name] = client.version()
    return versions[client.name]


def records_of(writer: str, codec: str, count: int = RECORDS) -> list[Written]:
    """What a client is given to write: values that shrink, text beyond ASCII, two headers."""
    headers = {"writer": writer, "codec": codec}
    return [
        Written(key=f"{writer}-{codec}-{number}", value=f"{number} naïve Größe 🚌 " + "v" * 200, headers=headers)
        for number in range(count)
    ]


def create(admin: AdminClient, topic: str, partitions: int) -> None:
    """Create a topic that keeps records of any age."""
    for done in admin.create_topics([NewTopic(topic, partitions, config={"retention.ms": "-1"})]).values():
        done.result(patient(20))


def eventually(ask: Callable[[], object], wanted: object, seconds: float = 30.0) -> None:
    """Ask until the answer is the wanted one."""
    deadline = time.monotonic() + patient(seconds)
    while (answer := ask()) != wanted:
        assert time.monotonic() < deadline, f"after {seconds} s still {answer}, not {wanted}"
        time.sleep(0.05)


@dataclass(slots=True)
class CodecTopics:
    """A topic for each writer, in which it wrote its records in every codec it supports; written once."""

    broker: Broker
    admin: AdminClient
    outcomes: dict[str, str | Exception] = field(default_factory=dict)

    def of(self, writer: Client) -> str:
        """The topic of a writer; raises what its writing raised."""
        if writer.name not in self.outcomes:
            try:
                self.outcomes[writer.name] = self._write(writer)
            except (AssertionError, ToolMissing) as problem:
                self.outcomes[writer.name] = problem
        outcome = self.outcomes[writer.name]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _write(self, writer: Client) -> str:
        topic = f"codecs-{writer.name}"
        create(self.admin, topic, 1)
        for codec in writer.codecs:
            writer.produce(self.broker.bootstrap_servers, topic, codec, records_of(writer.name, codec))
        return topic

    def of_all(self) -> dict[Client, str]:
        """The topics of all the writers that could write; those that could not fail in a test of their own."""
        topics = {}
        for writer in CLIENTS:
            with contextlib.suppress(AssertionError, ToolMissing):
                topics[writer] = self.of(writer)
        return topics


@pytest.fixture(scope="session")
def codec_topics(broker: Broker, admin: AdminClient) -> CodecTopics:
    """What the writers have written."""
    return CodecTopics(broker, admin)


def test_produces_every_codec(
    client: Client, version: str, broker: Broker, codec_topics: CodecTopics, client_report: ClientReport
) -> None:
    """The client writes in each codec; the broker's log holds all of it, compressed as the client did."""
    topic = codec_topics.of(client)
    log = (broker.data_dir / f"{topic}-0" / ("0" * 20 + ".log")).read_bytes()
    counts = dict.fromkeys(client.codecs, 0)
    for header, _ in iter_batches(log):
        counts[CODECS[header.compression]] += header.records_count
    assert counts == dict.fromkeys(client.codecs, RECORDS)
    client_report.note(client.name, version, "produce", "/".join(client.codecs))


def test_reads_every_codec_of_every_writer(
    client: Client,
    version: str,
    broker: Broker,
    admin: AdminClient,
    codec_topics: CodecTopics,
    client_report: ClientReport,
) -> None:
    """Keys, values, headers, offsets and times of what each client wrote in each codec; then the commit is there."""
    begun = time.time() - 3600
    topics = codec_topics.of_all()
    wanted = {
        record.key: record for writer in topics for codec in writer.codecs for record in records_of(writer.name, codec)
    }
    assert wanted
    group = f"reads-{client.name}"
    seen = client.read(broker.bootstrap_servers, group, len(wanted), list(topics.values()))
    assert len(seen) == len(wanted)
    assert {record.key: (record.value, record.headers) for record in seen} == {
        record.key: (record.value, record.headers) for record in wanted.values()
    }
    for writer in topics:
        own_records = [record for record in seen if record.headers["writer"] == writer.name]
        assert [record.offset for record in own_records] == list(range(len(own_records)))
        assert [record.key for record in own_records] == [key for key in wanted if key.startswith(f"{writer.name}-")]
        assert all(begun < record.timestamp / 1000 < time.time() + 60 for record in own_records)
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0) for topic in topics.values()])]
    (future,) = admin.list_consumer_group_offsets(asked).values()
    committed = {partition.topic: partition.offset for partition in future.result(patient(20)).topic_partitions}
    assert committed == {topic: RECORDS * len(writer.codecs) for writer, topic in topics.items()}
    eventually(lambda: described(admin, group), (ConsumerGroupState.EMPTY, []))
    client_report.note(client.name, version, "read", f"{len(CODECS)} codecs of {len(topics)} writers")


def described(admin: AdminClient, group: str) -> tuple[ConsumerGroupState, list[int]] | None:
    """The state of a group and how many partitions each member has; None while it has no coordinator."""
    (done,) = admin.describe_consumer_groups([group]).values()
    try:
        described_group = done.result(patient(20))
    except confluent_kafka.KafkaException as problem:
        if problem.args[0].code() in NO_COORDINATOR:
            return None
        raise
    return described_group.state, sorted(len(member.assignment.topic_partitions) for member in described_group.members)


def lose_one_of_three(members: Sequence[Client], topic: str, broker: Broker, admin: AdminClient) -> None:
    """Three processes share six partitions; the first is killed; the others take over and nothing is missed."""
    create(admin, topic, 6)
    writer = members[0]
    bootstrap = broker.bootstrap_servers
    with group_of([(member, member.member_command(bootstrap, topic, topic)) for member in members]) as running:
        eventually(lambda: described(admin, topic), (ConsumerGroupState.STABLE, [2, 2, 2]))
        before = records_of(writer.name, "none", GROUP_RECORDS)
        writer.produce(bootstrap, topic, "none", before)
        running.read_until(lambda: all(member.records for member in running.members), 30)
        running.members[0].kill()
        after = records_of(writer.name, "gzip", GROUP_RECORDS)
        writer.produce(bootstrap, topic, "gzip", after)
        wanted = {record.key for record in [*before, *after]}
        running.read_until(lambda: running.keys() == wanted, 30)
        eventually(lambda: described(admin, topic), (ConsumerGroupState.STABLE, [3, 3]))


def test_a_topic_is_made_on_first_use(
    client: Client, broker: Broker, admin: AdminClient, client_report: ClientReport
) -> None:
    """The first answer is that it is not there, asks again and writes."""
    topic = f"first-use-{client.name}"
    if client.name in ASKS_FOR_NONE:
        create(admin, topic, 1)
    written = records_of(client.name, "none", 1)
    client.produce(broker.bootstrap_servers, topic, "none", written)
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": f"{topic}-reader",
        "auto.offset.reset": "earliest",
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    (record,) = consumer.consume(1, patient(20))
    consumer.close()
    assert record.value() == written[0].value.encode()


def test_a_group_of_three_loses_a_member(
    client: Client, version: str, broker: Broker, admin: AdminClient, client_report: ClientReport
) -> None:
    """Three members that run the same client; one is killed with SIGKILL."""
    lose_one_of_three([client] * 3, f"three-{client.name}", broker, admin)
    client_report.note(client.name, version, "group of three", "lost one, read all")


def test_a_mixed_group_loses_a_member(broker: Broker, admin: AdminClient) -> None:
    """Three members that run three clients, which agree on the range assignor."""
    mixed = [client for client in CLIENTS if client.name in {"librdkafka", "aiokafka", "kafka-python"}]
    lose_one_of_three(mixed, "three-mixed", broker, admin)


@pytest.fixture(scope="session")
def timed(broker: Broker, admin: AdminClient) -> str:
    """A topic of 200 records a second apart, in four batches, the codecs taking turns."""
    create(admin, "timed", 1)
    for batch, codec in enumerate(("none", "gzip", "zstd", "lz4")):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 50}
        )
        for number in range(batch * 50, batch * 50 + 50):
            headers = {"n": str(number)}
            producer.produce("timed", key=str(number), value="v", headers=headers, timestamp=BASE + number * 1000)
        assert producer.flush(patient(20)) == 0
    return "timed"


@pytest.mark.parametrize(("milliseconds", "offset"), [(0, 0), (41_500, 42), (150_000, 150)])
def test_seeks_by_time(
    client: Client,
    version: str,
    broker: Broker,
    timed: str,
    client_report: ClientReport,
    milliseconds: int,
    offset: int,
) -> None:
    """The first record at or after a time: the first of all, one between two times, and the start of a batch."""
    record = client.since(broker.bootstrap_servers, timed, BASE + milliseconds)
    assert (record.offset, record.key, record.timestamp) == (offset, str(offset), BASE + offset * 1000)
    if milliseconds == 41_500:
        client_report.note(client.name, version, "seek by time", "yes")
