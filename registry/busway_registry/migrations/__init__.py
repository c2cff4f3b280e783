"""Alembic's migrations of the tables.

Here: a module for each, in `versions`.
Not here: when they run (`store.revisions`), the current tables (`store.tables`).
"""
