"""A service made of decorated functions.

| module | contents |
|---|---|
| `application` | starting, stopping and reading; joins all the others |
| `declaring/` | the decorators, checks before the start, creating declared topics |
| `sending` | sending to topics, at once or in a handler's transaction |
| `queues/` | workers of share groups |
| `handling/` | a record's way from the consumer through a handler to the committed offset |
| `tables/` | rows in memory and in a compacted topic |
| `dead_letters/` | reading, replaying and discarding dead letters |
| `monitoring/` | health, progress and metrics |
| `calling/` | a handler's arguments, its dependencies, the layers around a call |
| `extending/` | the interface of extensions (tables, SQL, monitoring, tests), and calling it |
| `service` | protocols of a service and of a running one |
| `serdes` | typed values ↔ bytes |
| `model/` | shared types: topics, routes, retries, transaction outcomes |
| `threads`, `serving`, `waiting` | threads for plain handlers; running until a signal; a log line while no partition is
assigned |
| `feed` | changes for subscribers: of tables and for pages |
| `offset_set` | finished offsets as metadata of a commit |

Each imports only lower layers (`lint-imports`). From the top: `application`; `declaring`; `queues`, `tables`,
`monitoring`, `sending`; `handling`; `calling`; `extending`, `serving`, `waiting`; `service`; `dead_letters`, `serdes`;
`model`, `offset_set`, `threads`, `feed`. The public `App`, with its test support, is `busway.testable_app`, above
`busway.testing`.

The public names are those of `busway`.
"""
