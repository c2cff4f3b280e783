"""Types of a service: topics, routes, retries, transaction outcomes, and the errors of a declaration.

Nothing here imports another part of `busway.app`.
"""
