"""Subjects sorted by code points; a schema's users found in order.

Here: by default PostgreSQL sorts by the database's language, and then no index serves lists of names or prefixes.
SQLite always sorts by code points.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("versions", "subject", type_=sa.String(1024, collation="C"))
    op.drop_index("ix_versions_schema_id", "versions")
    op.create_index("versions_of_schema", "versions", ["schema_id", "subject", "version"])
