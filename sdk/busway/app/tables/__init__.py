"""Rows by key that a service keeps in a compacted topic.

`table` holds rows of the assigned partitions, restored by `copies` and locked by `row_locks`; `global_table` holds all
rows in every instance; `rows` is the memory of both.
"""
