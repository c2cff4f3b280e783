"""Dead letters: records that handlers failed on.

`letter` parses them, `headers` marks replayed ones, `replay` finds, replays and discards them.
"""
