"""The tables of busway 0.1.0, created without Alembic; such a database counts as this revision.

Here: the original tables. Each later change is a migration.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "schemas",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("context", sa.String(255), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("guid", sa.String(36), nullable=False, index=True),
        sa.Column("schema_type", sa.String(32), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("references", sa.JSON, nullable=False),
        sa.Column("metadata", sa.JSON),
        sa.Column("rule_set", sa.JSON),
        sa.Index("schemas_identity", "context", "fingerprint", unique=True),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "versions",
        sa.Column("subject", sa.String(1024), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("schema_id", sa.Integer, sa.ForeignKey("schemas.id"), nullable=False, index=True),
        sa.Column("deleted", sa.Boolean, nullable=False),
        sa.Column("timestamp_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "schema_references",
        sa.Column("schema_id", sa.Integer, sa.ForeignKey("schemas.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("name", sa.String(1024), primary_key=True),
        sa.Column("subject", sa.String(1024), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Index("schema_references_target", "subject", "version"),
    )
    op.create_table(
        "settings",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("subject", sa.String(1024), primary_key=True),
        sa.Column("value", sa.JSON, nullable=False),
    )
