"""The tables, equal in SQLite and PostgreSQL.

Here: columns and constraints; the database enforces unique ids and identities. Each change needs a migration
(`migrations`).
"""

from typing import Final

from sqlalchemy import JSON, BigInteger, Boolean, Column, ForeignKey, Index, Integer, MetaData, String, Table, Text

METADATA = MetaData()
CONTEXT: Final = "."
"""Confluent's name of the default context, the only one."""

REVISIONS = Table("busway_registry_revision", METADATA, Column("version_num", String(32), primary_key=True))
"""Alembic's table, under a name that other programs do not use."""

IDS = Table(
    "ids",
    METADATA,
    Column("context", String(255), primary_key=True),
    Column("last_id", BigInteger, nullable=False),
)
"""The highest id ever given. Ids of deleted schemas are not reused."""

SCHEMAS = Table(
    "schemas",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("context", String(255), nullable=False, default=CONTEXT),
    Column("fingerprint", String(64), nullable=False),
    Column("guid", String(36), nullable=False, index=True),
    Column("schema_type", String(32), nullable=False),
    Column("text", Text, nullable=False),
    Column("references", JSON, nullable=False),
    Column("metadata", JSON(none_as_null=True)),
    Column("rule_set", JSON(none_as_null=True)),
    Index("schemas_identity", "context", "fingerprint", unique=True),
)

NAME: Final = String(1024).with_variant(String(1024, collation="C"), "postgresql")
"""Sorted by code points in any database, so an index serves prefixes."""

VERSIONS = Table(
    "versions",
    METADATA,
    Column("subject", NAME, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("schema_id", Integer, ForeignKey("schemas.id"), nullable=False),
    Column("deleted", Boolean, nullable=False, default=False),
    Column("timestamp_ms", BigInteger, nullable=False),
    Index("versions_of_schema", "schema_id", "subject", "version"),
)

REFERENCES = Table(
    "reference_targets",
    METADATA,
    Column("schema_id", Integer, ForeignKey("schemas.id", ondelete="CASCADE"), primary_key=True),
    Column("subject", String(1024), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Index("reference_targets_target", "subject", "version"),
)
"""Versions that a schema refers to; the names are in `schemas.references`."""

SETTINGS = Table(
    "settings",
    METADATA,
    Column("kind", String(16), primary_key=True),
    Column("subject", String(1024), primary_key=True),
    Column("value", JSON, nullable=False),
)
