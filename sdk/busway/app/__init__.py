"""A service made of decorated functions: what it declares, how a record reaches them, what stands around.

| room | what is in it |
|---|---|
| `application` | starting and stopping, reading; joins all the others |
| `declaring/` | the decorators, what is refused before anything runs, creating what is declared |
| `sending` | into topics, at once or in a handler's transaction |
| `queues/` | share groups: their workers beside the app's own |
| `handling/` | a record's way from the consumer through a handler to the committed offset |
| `tables/` | rows that a service keeps, in memory and in a compacted topic |
| `dead_letters/` | records that were put aside: reading, replaying, discarding |
| `monitoring/` | health, progress and metrics |
| `calling/` | a handler's arguments, its dependencies, what surrounds a call |
| `extending/` | the interface by which tables, SQL, monitoring and tests watch and surround handlers, and calling it |
| `service` | what the parts see of a service and of a running one, as protocols |
| `serdes` | typed values ↔ bytes |
| `model/` | the words of all the others: topics, routes, retries, the current attempt |
| `threads`, `serving`, `waiting` | threads for plain handlers; an app until a signal; one that has no partitions yet |
| `feed` | changes, handed to whoever listens: of tables and for pages |
| `offset_set` | offsets that are finished, as the metadata of a commit: for commits and for dead letters |

Each imports only what is on a lower floor, which `lint-imports` checks, from the top: `application`; `declaring`; `queues`, `tables`,
`monitoring`, `sending`; `handling`; `calling`; `extending`, `serving`, `waiting`; `service`; `dead_letters`, `serdes`; `model`, `offset_set`,
`threads`, `feed`. The public `App`, which can be tested, is `busway.testable_app`, above `busway.testing`.

The public names are those of `busway`.
"""
