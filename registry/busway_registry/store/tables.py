"""The tables, for SQLite and PostgreSQL alike.

What lives here: columns and constraints; ids and identities are unique here, not by the care of the code above.
"""

from sqlalchemy import JSON, BigInteger, Boolean, Column, ForeignKey, Index, Integer, MetaData, String, Table, Text

METADATA = MetaData()

SCHEMAS = Table(
    "schemas",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("context", String(255), nullable=False, default="."),
    Column("fingerprint", String(64), nullable=False),
    Column("guid", String(36), nullable=False, index=True),
    Column("schema_type", String(32), nullable=False),
    Column("text", Text, nullable=False),
    Column("references", JSON, nullable=False),
    Column("metadata", JSON(none_as_null=True)),
    Column("rule_set", JSON(none_as_null=True)),
    Index("schemas_identity", "context", "fingerprint", unique=True),
    sqlite_autoincrement=True,  # an id is never given twice, not even after its schema is gone
)

VERSIONS = Table(
    "versions",
    METADATA,
    Column("subject", String(1024), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("schema_id", Integer, ForeignKey("schemas.id"), nullable=False, index=True),
    Column("deleted", Boolean, nullable=False, default=False),
    Column("timestamp_ms", BigInteger, nullable=False),
)

REFERENCES = Table(
    "schema_references",
    METADATA,
    Column("schema_id", Integer, ForeignKey("schemas.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(1024), primary_key=True),
    Column("subject", String(1024), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Index("schema_references_target", "subject", "version"),
)

SETTINGS = Table(
    "settings",
    METADATA,
    Column("kind", String(16), primary_key=True),
    Column("subject", String(1024), primary_key=True),
    Column("value", JSON, nullable=False),
)
