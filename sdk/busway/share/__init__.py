"""Share groups: members take single records of shared partitions and acknowledge each (KIP-932).

Not here: consumer groups (`busway.consumer`).
"""
