"""Share groups: members take single records of shared partitions and acknowledge each (KIP-932).

Here: `ShareConsumer` and its parts.
Not here: consumer groups (`busway.consumer`), handlers (`busway.app`).
"""
