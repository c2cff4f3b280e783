"""Handlers that take records of a share group, as a work queue.

What lives here: feeding them, and acknowledging their records. What does not: declaring them (`declaring`), calling a
handler (`handling`).
"""
