"""A record's way through the handlers of a service.

Inwards: `worker` reads, and gives each partition's records to a `lane` (`batches` for batch handlers) per handler;
`schedule` chooses the next record; `attempts` calls the handler; `busway.app.model.retry` decides after a failure.
Outwards: `completed_offsets` keeps the finished prefix, `worker` commits. `loop_watchdog` names a handler that blocks
the event loop.
"""
