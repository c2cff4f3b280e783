"""Alembic's environment: runs on the connection and in the transaction of the opening store.

Here: passing on that connection; `store.revisions` gives all settings.
"""

from alembic import context

from busway_registry.store.tables import REVISIONS

context.configure(connection=context.config.attributes["connection"], version_table=REVISIONS.name)
with context.begin_transaction():
    context.run_migrations()
