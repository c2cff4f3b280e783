"""Share groups: members that take records of the same partitions one by one, and say of each what became of it (KIP-932).

What lives here: `ShareConsumer` and its parts. What does not: groups that share partitions (`busway.consumer`), handlers (`busway.app`).
"""
