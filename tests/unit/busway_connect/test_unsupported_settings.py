"""Settings that are not served: each is refused by its name, so that nothing goes out that a setting should keep back."""

import pytest
from tests.support.connectors import CollectingSink

from busway_connect.config import BadSetting, WorkerConfig
from busway_connect.connector import Connector
from busway_connect.overrides import consumer_options
from busway_connect.plugins import Plugins
from busway_connect.postgres import PostgresConnector
from busway_connect.runtime.worker import Worker
from busway_connect.sql_sink import JdbcSink
from busway_connect.unsupported_settings import inert_settings
from busway_connect.validation import BadConfig, check, problems

POSTGRES = {
    "name": "bank", "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "database.hostname": "h",
    "database.user": "u", "database.dbname": "d", "topic.prefix": "p",
}  # fmt: skip
JDBC = {"name": "sink", "connector.class": "JdbcSink", "connection.url": "sqlite:///x", "topics": "t"}
UNWRAP = {"transforms": "unwrap", "transforms.unwrap.type": "ExtractNewRecordState"}
JSON = {"value.converter": "JsonConverter"}
AVRO = {"value.converter": "AvroConverter", "value.converter.schema.registry.url": "http://r"}

REFUSED = [
    ("snapshot.select.statement.overrides", "public.people", {}),
    ("snapshot.select.statement.overrides.public.people", "SELECT id FROM people", {}),
    ("snapshot.include.collection.list", "public.people", {}),
    ("column.propagate.source.type", ".*", {}),
    ("skip.messages.without.change", "true", {}),
    ("message.prefix.include.list", "a", {}),
    ("topic.naming.strategy", "io.debezium.schema.DefaultUnicodeTopicNamingStrategy", {}),
    ("converters", "mine", {}),
    ("post.processors", "reselector", {}),
    ("signal.data.collection", "public.signals", {}),
    ("database.initial.statements", "SET ROLE nobody", {}),
    ("table.whitelist", "public.a", {}),
    ("tabel.include.list", "public.a", {}),
    ("header.converter", "org.apache.kafka.connect.storage.StringConverter", {}),
    ("offsets.storage.topic", "mine", {}),
    ("producer.override.security.providers", "x.Provider", {}),
    ("producer.override.security.protocol", "TLS", {}),
    ("admin.override.security.protocol", "SASL_SSL", {}),
    ("consumer.override.max.poll.records", "5", {}),
    ("admin.override.client.id", "x", {}),
    ("transforms.unwrap.drop.fields.keep.schema.compatible", "false", UNWRAP),
    ("transforms.mask.type", "org.apache.kafka.connect.transforms.MaskField$Value", {}),
    ("transforms.mask.type", "org.apache.kafka.connect.transforms.MaskField$Value", UNWRAP),
    ("predicates.p.type", "RecordIsTombstone", {}),
    ("value.converter.schemas.enable", "false", {}),
    ("value.converter.rule.executors", "encrypt", AVRO),
    ("value.converter.value.subject.name.strategy", "io.confluent.kafka.serializers.subject.RecordNameStrategy", AVRO),
    ("value.converter.use.latest.version", "true", AVRO),
    ("value.converter.schemas.enable", "flase", JSON),
    ("value.converter.decimal.format", "TEXT", JSON),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "beside"), REFUSED)
def test_what_nobody_serves_is_refused_by_name(name: str, value: str, beside: dict[str, str]) -> None:
    """With the value, and alone among what is right."""
    plugins = Plugins()
    config = {**POSTGRES, **beside, name: value}
    assert set(problems(plugins, PostgresConnector, config)) == {name}
    with pytest.raises(BadConfig, match=f"configuration {name}:|The setting {name} ".replace("$", r"\$")):
        check(plugins, PostgresConnector, config)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fields.whitelist", "id"),
        ("field.include.list", "t:id"),
        ("field.exclude.list", "t:ssn"),
        ("truncate.enabled", "true"),
        ("use.time.zone", "Europe/Berlin"),
        ("hibernate.connection.isolation", "8"),
        ("topic.creation.default.partitions", "3"),
        ("producer.override.acks", "0"),
    ],
)
def test_a_sink_refuses_too(name: str, value: str) -> None:
    """What would write other rows than those that were asked for."""
    assert set(problems(Plugins(), JdbcSink, {**JDBC, name: value})) == {name}


@pytest.mark.parametrize(
    ("kind", "config", "says"),
    [
        (
            PostgresConnector,
            {**POSTGRES, "snapshot.mode": "custom", "plugin.name": "wal2json"},
            [
                "\nInvalid value custom for configuration snapshot.mode: 'custom' is not supported; what is: initial",
                "\nInvalid value wal2json for configuration plugin.name: 'wal2json' is not supported; what is: pgoutput",
            ],
        ),
        (JdbcSink, {**JDBC, "insert.mode": "upsert"}, ["\nprimary.key.mode: insert.mode=upsert finds rows by a key"]),
        (
            JdbcSink,
            {**JDBC, "connection.url": "mysql://me:s3cret@h/d", "batch.size": "x"},
            [
                "Invalid value mysql://me:[hidden]@h/d for configuration connection.url: names mysql",
                "Invalid value x for",
            ],
        ),
    ],
)
def test_each_line_of_a_refusal_names_its_setting(
    kind: type[Connector], config: dict[str, str], says: list[str]
) -> None:
    """Also where only the connector knows what is wrong; every error at once."""
    with pytest.raises(BadConfig) as refused:
        check(Plugins(), kind, config)
    assert all(text in str(refused.value) for text in says)


def test_the_remedy_is_said() -> None:
    """An old name says the new one."""
    with pytest.raises(BadConfig, match=r"configuration table\.whitelist: .*; set table\.include\.list"):
        check(Plugins(), PostgresConnector, {**POSTGRES, "table.whitelist": "a"})


def test_what_changes_nothing_is_taken_and_said_to_mean_nothing() -> None:
    """So that a config which was copied from Debezium or Confluent runs; each with its reason."""
    config = {
        **POSTGRES, **AVRO, "tasks.max": "1", "tasks.max.enforce": "true", "config.action.reload": "restart", "poll.interval.ms": "10",
        "lsn.flush.timeout.ms": "1000", "topic.naming.strategy": "io.debezium.schema.SchemaTopicNamingStrategy",
        "value.converter.schemas.enable": "true", "errors.log.include.messages": "true",
    }  # fmt: skip
    plugins = Plugins()
    assert not problems(plugins, PostgresConnector, config)
    inert = inert_settings(plugins, PostgresConnector, config)
    assert inert.keys() == {"poll.interval.ms", "lsn.flush.timeout.ms", "value.converter.schemas.enable"}
    assert all(inert.values())
    assert not problems(
        plugins, JdbcSink, {**JDBC, "pk.mode": "none", "max.retries": "3", "quote.sql.identifiers": "ALWAYS"}
    )


def test_a_connector_of_ones_own_says_which_names_it_takes() -> None:
    """One that does not say so takes those that it lists."""
    config = {"name": "x", "connector.class": "CollectingSink", "topics": "t"}
    plugins = Plugins(["tests.support.connectors"])
    assert not problems(plugins, CollectingSink, {**config, "refuses": "1"})
    assert set(problems(plugins, CollectingSink, {**config, "refuse": "1"})) == {"refuse"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("security.providers", "x.Provider"),
        ("ssl.client.auth", "required"),
        ("listeners.https.ssl.keystore.location", "/x"),
        ("rest.extension.classes", "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"),
        ("connector.client.config.override.policy", "None"),
        ("header.converter", "org.apache.kafka.connect.storage.StringConverter"),
    ],
)
def test_a_workers_setting_that_guards_something_is_refused(name: str, text: str) -> None:
    """To pass it over would leave open what it guards."""
    with pytest.raises(BadSetting, match=f"{name.replace('.', '[.]')} is not served"):
        WorkerConfig.from_properties({name: text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("consumer.sasl.mechanism", "PLAIN"),
        ("producer.acks", "0"),
        ("consumer.max.poll.records", "0"),
        ("admin.retries", "3"),
    ],
)
def test_a_workers_setting_of_clients_is_served_or_refused(name: str, text: str) -> None:
    """As a connector's override is, under the name that the worker's has."""
    with pytest.raises(BadSetting, match=f"^{name.replace('.', '[.]')}: "):
        Worker(WorkerConfig.from_properties({name: text}), "w")
    Worker(WorkerConfig.from_properties({"consumer.max.poll.records": "7", "producer.linger.ms": "1"}), "w")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("session.timeout.ms", "0"),
        ("heartbeat.interval.ms", "8000"),
        ("isolation.level", "read_all"),
        ("auto.offset.reset", "middle"),
        ("check.crcs", "maybe"),
        ("group.id", "mine"),
    ],
)
def test_an_override_that_cannot_be_is_named(name: str, text: str) -> None:
    """Session and heartbeat together."""
    config = {**JDBC, "consumer.override.session.timeout.ms": "7000", f"consumer.override.{name}": text}
    assert set(problems(Plugins(), JdbcSink, config)) == {f"consumer.override.{name}"}


def test_overrides_reach_the_consumer() -> None:
    """With their types; a shorter session brings a shorter heartbeat, and the worker's session is the default."""
    given = {"consumer.override.session.timeout.ms": "6000", "consumer.override.isolation.level": "read_committed"}
    options = consumer_options(given, 10_000)
    assert options == {
        "auto_offset_reset": "earliest", "session_timeout_ms": 6000, "heartbeat_interval_ms": 2000, "isolation_level": "read_committed",
        "security": None,
    }  # fmt: skip
    assert consumer_options({}, 10_000)["session_timeout_ms"] == 10_000
