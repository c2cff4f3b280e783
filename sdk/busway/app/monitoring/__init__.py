"""How a running app is doing.

`progress` knows how far each partition is, `health` asks the brokers and judges, `metrics` counts for Prometheus.
"""
