"""Alembic's migrations of the tables.

What lives here: a module for each migration, in `versions`. What does not: when they run (`store.revisions`), the
current tables (`store.tables`), which an empty database gets without migrations.
"""
