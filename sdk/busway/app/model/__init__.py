"""The words of a service: topics, routes, retries, the attempt that a task makes, and the errors of a declaration.

Nothing here imports another part of `busway.app`.
"""
