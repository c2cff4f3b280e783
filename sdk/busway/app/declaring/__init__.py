"""Declarations of a service, before anything runs.

`declarations` has the decorators, with `table_declarations` and `queue_declarations`; `lifespan` and `options` check
those.
"""
