"""A service made of decorated functions: what it declares, how a record reaches them, what stands around.

| room | what is in it |
|---|---|
| `bus` | `App`: starting and stopping, sending, reading; joins all the others |
| `declaring/` | what the decorators take, and what is refused before anything runs: topics, handlers, their parameters |
| `handling/` | a record's way from the consumer through a handler to the committed offset |
| `tables/` | rows that a service keeps, in memory and in a compacted topic |
| `dead_letters/` | records that were put aside: reading, replaying, discarding |
| `monitoring/` | health, progress and metrics |
| `extension`, `hooks` | the interface by which tables, SQL, monitoring and tests watch and surround handlers, and calling it |
| `serdes`, `topics` | typed values ↔ bytes; making topics on the brokers |
| `threads`, `serving` | threads for plain handlers; an app until a signal |
| `feed` | changes, handed to whoever listens: of tables and for pages |
| `offset_set` | offsets that are finished, as the metadata of a commit: for commits and for dead letters |

The public names are those of `busway`.
"""
