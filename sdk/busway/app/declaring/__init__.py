"""Declarations of a service, before anything runs.

`declarations` has the decorators, with `table_declarations` and `queue_declarations`; `lifespan` opens what the app
needs, `options` checks those of its clients. The resulting topics and routes are in `busway.app.model`.
"""
