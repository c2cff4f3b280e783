"""Rows by key that a service keeps in a compacted topic.

`table` has those of the partitions that an instance is given, which `copies` reads back, and `row_locks` says whose turn it is with them;
`global_table` has all of them in every instance; `rows` is what both hold in memory.
"""
