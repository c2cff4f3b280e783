"""Rows by key that a service keeps in a compacted topic.

`table` has those of the partitions that an instance is given, `global_table` all of them in every instance; `rows` is what both hold in
memory.
"""
