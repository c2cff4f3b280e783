"""Share groups: members take single records of shared partitions and acknowledge each (KIP-932).

What lives here: `ShareConsumer` and its parts. What does not: consumer groups (`busway.consumer`), handlers
(`busway.app`).
"""
