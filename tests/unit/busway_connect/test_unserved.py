"""Settings that nobody serves: each is refused by its name, so that nothing goes out that it was to keep back."""

import pytest
from tests.support.connectors import CollectingSink

from busway_connect.connector import Connector
from busway_connect.plugins import Plugins
from busway_connect.postgres import PostgresConnector
from busway_connect.sql_sink import JdbcSink
from busway_connect.unserved import inert_settings
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
    ("producer.override.security.protocol", "SSL", {}),
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
    assert all(one in str(refused.value) for one in says)


def test_the_remedy_is_said() -> None:
    """An old name says the new one."""
    with pytest.raises(BadConfig, match=r"configuration table\.whitelist: .*; set table\.include\.list"):
        check(Plugins(), PostgresConnector, {**POSTGRES, "table.whitelist": "a"})


def test_what_changes_nothing_is_taken_and_said_to_mean_nothing() -> None:
    """So that a config which was copied from Debezium or Confluent runs; each with its reason."""
    config = {
        **POSTGRES, **AVRO, "tasks.max": "1", "tasks.max.enforce": "true", "config.action.reload": "restart", "poll.interval.ms": "10",
        "slot.max.retries": "6", "topic.naming.strategy": "io.debezium.schema.SchemaTopicNamingStrategy",
        "value.converter.schemas.enable": "true", "errors.log.include.messages": "true",
    }  # fmt: skip
    plugins = Plugins()
    assert not problems(plugins, PostgresConnector, config)
    found = inert_settings(plugins, PostgresConnector, config)
    assert found.keys() == {"poll.interval.ms", "slot.max.retries", "value.converter.schemas.enable"}
    assert all(found.values())
    assert not problems(
        plugins, JdbcSink, {**JDBC, "pk.mode": "none", "max.retries": "3", "quote.sql.identifiers": "ALWAYS"}
    )


def test_a_connector_of_ones_own_says_which_names_it_takes() -> None:
    """One that does not say so takes those that it lists."""
    config = {"name": "x", "connector.class": "CollectingSink", "topics": "t"}
    plugins = Plugins(["tests.support.connectors"])
    assert not problems(plugins, CollectingSink, {**config, "refuses": "1"})
    assert set(problems(plugins, CollectingSink, {**config, "refuse": "1"})) == {"refuse"}
