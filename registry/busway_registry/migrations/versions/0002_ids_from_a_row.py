"""Ids from a row, and references without names.

Here: a row takes part in a transaction, a sequence of PostgreSQL does not: a rolled-back import of the highest id would
use up all ids. A reference's name has no limit, while PostgreSQL's index takes 2,704 bytes.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    connection = op.get_bind()
    ids = op.create_table(
        "ids",
        sa.Column("context", sa.String(255), primary_key=True),
        sa.Column("last_id", sa.BigInteger, nullable=False),
    )
    last_id = connection.scalar(sa.text("SELECT coalesce(max(id), 0) FROM schemas"))
    if connection.dialect.name == "sqlite":
        given = connection.scalar(sa.text("SELECT seq FROM sqlite_sequence WHERE name = 'schemas'"))
        last_id = max(last_id, given or 0)
    op.bulk_insert(ids, [{"context": ".", "last_id": last_id}])

    op.create_table(
        "reference_targets",
        sa.Column("schema_id", sa.Integer, sa.ForeignKey("schemas.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("subject", sa.String(1024), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Index("reference_targets_target", "subject", "version"),
    )
    op.execute("INSERT INTO reference_targets SELECT DISTINCT schema_id, subject, version FROM schema_references")
    op.drop_table("schema_references")
