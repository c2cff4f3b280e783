"""What a service declares, before anything runs.

`declarations` has the decorators, with `table_declarations` and `queue_declarations`; `lifespan` is what an app opens, `options` what its
clients take. What the decorators leave behind, topics and routes, is in `busway.app.model`.
"""
