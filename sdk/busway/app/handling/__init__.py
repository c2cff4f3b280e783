"""A record's way through the handlers of a service.

From the outside to the inside: `worker` reads and gives each partition's records to a `lane` for each handler (`batches` for one that
takes many at once); `schedule` says which record may run now; `attempts` calls the handler through its layers (`busway.app.calling`), and
`busway.app.model.retry` says what follows when it raises. Then back: `completed_offsets` knows up to where the partition is finished, and `worker` commits that.
`loop_watchdog` names a handler that keeps the event loop.
"""
