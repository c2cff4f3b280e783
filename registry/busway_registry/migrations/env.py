"""What Alembic runs for a migration: on the connection, and in the transaction, of the store that opens.

What lives here: handing that connection over. There is no `alembic.ini`; `store.revisions` gives all settings.
"""

from alembic import context

from busway_registry.store.tables import REVISIONS

context.configure(connection=context.config.attributes["connection"], version_table=REVISIONS.name)
with context.begin_transaction():
    context.run_migrations()
