"""Alembic's migrations of the tables.

Here: a module for each migration, in `versions`.
Not here: when they run (`store.revisions`), the current tables (`store.tables`), which an empty database gets without
migrations.
"""
