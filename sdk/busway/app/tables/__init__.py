"""Rows by key that a service keeps in a compacted topic.

`table` has the rows of assigned partitions, with `copies` and `row_locks`; `global_table` all rows in every instance;
`rows` is the memory of both.
"""
