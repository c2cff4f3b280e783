"""The steps from one shape of the tables to the next, for Alembic.

What lives here: one module a step, in `versions`. What does not: when they run (`store.revisions`), and today's shape (`store.tables`),
from which an empty database is made without any step.
"""
