"""Records that handlers put aside.

`letter` is what one says, `headers` whom a replayed one is for, `replay` finds them, hands them in again, or lets them be.
"""
