"""Handlers that take records of a share group, as a work queue.

Here: feeding them, and acknowledging their records.
Not here: declaring (`declaring`), calling (`handling`).
"""
