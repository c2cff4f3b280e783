"""Declarations of a service, before anything runs.

`declarations` has the decorators, with `table_declarations` and `queue_declarations`; `lifespan` checks lifespans,
`options` client options. Topics and routes are in `busway.app.model`.
"""
