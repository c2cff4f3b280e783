"""A record's way through the handlers of a service.

From the outside to the inside: `worker` reads and gives each partition's records to a `lane` for each handler (`batches` for one that
takes many at once); `schedule` says which record may run now; `attempts` calls the handler through its layers, `calls`, and `failures`
says what follows when it raises. Then back: `ack` knows up to where the partition is finished, and `worker` commits that.
`lag` names a handler that keeps the event loop.
"""
