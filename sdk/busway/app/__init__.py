"""A service made of decorated functions: declarations, the way of a record to a handler, and its surroundings.

| module | contents |
|---|---|
| `application` | starting, stopping and reading; joins all the others |
| `declaring/` | the decorators, the checks before anything runs, creating declared topics |
| `sending` | sending to topics, at once or in a handler's transaction |
| `queues/` | workers of share groups beside the app's own worker |
| `handling/` | a record's way from the consumer through a handler to the committed offset |
| `tables/` | rows of a service, in memory and in a compacted topic |
| `dead_letters/` | reading, replaying and discarding dead letters |
| `monitoring/` | health, progress and metrics |
| `calling/` | a handler's arguments, its dependencies, the layers around a call |
| `extending/` | the interface of extensions (tables, SQL, monitoring, tests), and calling it |
| `service` | protocols: what the parts see of a service and of a running one |
| `serdes` | typed values ↔ bytes |
| `model/` | types of all the others: topics, routes, retries, transaction outcomes |
| `threads`, `serving`, `waiting` | threads for plain handlers; running until a signal; a log line while no partition is
assigned |
| `feed` | changes for subscribers: of tables and for pages |
| `offset_set` | finished offsets as metadata of a commit, for commits and for dead letters |

Each imports only from lower layers, checked by `lint-imports`. From the top: `application`; `declaring`; `queues`,
`tables`, `monitoring`, `sending`; `handling`; `calling`; `extending`, `serving`, `waiting`; `service`; `dead_letters`,
`serdes`; `model`, `offset_set`, `threads`, `feed`. The public `App`, with its test support, is `busway.testable_app`,
above `busway.testing`.

The public names are those of `busway`.
"""
