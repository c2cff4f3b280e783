"""Handlers that take records of a share group, as a work queue.

What lives here: feeding them, and telling the group what became of each record. What does not: declaring them (`declaring`), a call of a
handler (`handling`).
"""
