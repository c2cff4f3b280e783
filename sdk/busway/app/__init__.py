"""A service made of decorated functions.

| module | contents |
|---|---|
| `application` | starting, stopping, reading |
| `declaring/` | decorators, checks, creating declared topics |
| `sending` | sending, at once or in a handler's transaction |
| `queues/` | workers of share groups |
| `handling/` | a record's way from the consumer to the committed offset |
| `tables/` | rows in memory and in a compacted topic |
| `dead_letters/` | reading, replaying, discarding |
| `monitoring/` | health, progress, metrics |
| `calling/` | arguments, dependencies, layers of a call |
| `extending/` | extensions, and calling them |
| `service` | protocols of a service |
| `serdes` | typed values ↔ bytes |
| `model/` | shared types |
| `threads`, `serving`, `waiting` | threads for plain handlers; signals; a log line without partitions |
| `feed` | changes for subscribers |
| `offset_set` | finished offsets as metadata of a commit |

Layers: docs/ARCHITECTURE.md. The public `App`, with its test support, is `busway.testable_app`.
"""
