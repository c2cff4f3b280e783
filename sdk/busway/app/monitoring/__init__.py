"""State of a running app.

`progress` tracks each partition, `health` queries the brokers and judges, `metrics` counts for Prometheus.
"""
