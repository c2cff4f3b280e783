"""Dead letters: records on which handlers failed.

`letter` parses them, `headers` marks replayed ones, `replay` finds, replays and discards them.
"""
