"""The connector's settings: what is refused, and which tables they choose."""

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from busway_connect.connector import ConfigInvalid
from busway_connect.postgres import PostgresConnector
from busway_connect.postgres.catalog import TableId
from busway_connect.postgres.settings import SETTINGS, parse, problems
from busway_connect.postgres.slots import PositionLost, conninfo, translated

GOOD = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}


def test_the_least_config_has_debeziums_defaults() -> None:
    """Only where it reads, as whom, what, and the prefix must be said."""
    settings = parse(GOOD)
    assert (settings.slot, settings.publication, settings.snapshot_mode) == ("debezium", "dbz_publication", "initial")
    assert (settings.decimal_handling_mode, settings.time_precision_mode) == ("precise", "adaptive")
    assert settings.skipped_operations == {"t"}
    assert PostgresConnector.validate(GOOD) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("database.hostname", ""),
        ("database.port", "0"),
        ("database.port", "x"),
        ("plugin.name", "decoderbufs"),
        ("snapshot.mode", "custom"),
        ("decimal.handling.mode", "exact"),
        ("time.precision.mode", "isostring"),
        ("interval.handling.mode", "iso"),
        ("hstore.handling.mode", "text"),
        ("provide.transaction.metadata", "true"),
        ("tombstones.on.delete", "yes"),
        ("table.include.list", "("),
        ("slot.name", "Big-Name"),
        ("skipped.operations", "c,x"),
        ("message.key.columns", "public.t"),
        ("publication.autocreate.mode", "no_tables"),
        ("topic.prefix", "bank/one"),
        ("heartbeat.topics.prefix", "a b"),
        ("max.queue.size", "0"),
        ("max.queue.size.in.bytes", "-1"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str) -> None:
    """The error stands beside its setting, in the validate call and at the start."""
    assert set(problems({**GOOD, name: value})) == {name}
    with pytest.raises(ConfigInvalid) as refused:
        parse({**GOOD, name: value})
    assert set(refused.value.errors) == {name}


def test_files_of_tls_reach_the_driver() -> None:
    """By libpq's names; a password may hold anything."""
    more = {"database.sslmode": "verify-full", "database.sslrootcert": "/ca.pem", "database.password": "a' b\\c%"}
    options = conninfo_to_dict(conninfo(parse({**GOOD, **more})))
    assert (options["sslmode"], options["sslrootcert"], options["password"]) == ("verify-full", "/ca.pem", "a' b\\c%")
    assert "sslkey" not in options


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("FATAL:  must be superuser or replication role to start walsender", "database.user"),
        (
            "FATAL:  permission denied to start WAL sender\nDETAIL:  Only roles with the REPLICATION attribute …",
            "database.user",
        ),
        ("ERROR:  logical decoding requires wal_level >= logical", "plugin.name"),
        ('ERROR:  logical decoding requires "wal_level" >= "logical"', "plugin.name"),
        ("ERROR:  all replication slots are in use", "slot.name"),
        ('FATAL:  password authentication failed for user "u"', "database.password"),
    ],
)
def test_what_the_server_refuses_names_the_setting(text: str, setting: str) -> None:
    """In the words of PostgreSQL 15 and of those since."""
    problem = translated(psycopg.OperationalError(text))
    assert isinstance(problem, ConfigInvalid)
    assert list(problem.errors) == [setting]


@pytest.mark.parametrize(
    "text",
    [
        'cannot read from logical replication slot "debezium"',
        'can no longer get changes from replication slot "debezium"',
        'can no longer access replication slot "debezium"',
    ],
)
def test_a_lost_slot_is_known_by_its_text(text: str) -> None:
    """PostgreSQL's words differ by release."""
    assert isinstance(translated(psycopg.OperationalError(text)), PositionLost)


def test_include_and_exclude_do_not_stand_together() -> None:
    """As in Debezium."""
    assert set(problems({**GOOD, "table.include.list": "a", "table.exclude.list": "b"})) == {"table.exclude.list"}


@pytest.mark.parametrize(
    ("config", "taken"),
    [
        ({}, ["public.a", "public.ab", "Other.a"]),
        ({"table.include.list": r"public\.a"}, ["public.a"]),
        ({"table.include.list": r"PUBLIC\.A.*, other\.a"}, ["public.a", "public.ab", "Other.a"]),
        ({"table.exclude.list": r".*\.a"}, ["public.ab"]),
        ({"schema.include.list": "other"}, ["Other.a"]),
        ({"schema.exclude.list": "other", "table.include.list": r".*\.ab"}, ["public.ab"]),
        ({"table.include.list": r"public\.a{1\,2}b"}, ["public.ab"]),
    ],
)
def test_which_tables_are_captured(config: dict[str, str], taken: list[str]) -> None:
    """Anchored regular expressions without regard to case, separated by commas that are not escaped."""
    settings = parse({**GOOD, **config})
    tables = [TableId(schema=schema, name=name) for schema, name in (("public", "a"), ("public", "ab"), ("Other", "a"))]
    assert [str(table) for table in tables if settings.captures(table)] == taken


def test_each_setting_says_what_it_is_for() -> None:
    """The validate call shows it."""
    assert all(setting.doc for setting in SETTINGS)
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)
