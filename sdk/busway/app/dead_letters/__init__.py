"""Records that handlers put aside.

`letter` is what one says, `replay` finds them, hands them in again, or lets them be.
"""
