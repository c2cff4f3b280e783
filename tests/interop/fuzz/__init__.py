"""Random orders of calls, legal and illegal, against Busway, a model and Apache Kafka 4.3.1.

Here: the two fuzzers (transactions; groups), their models, and what is compared at the end of an order.
Not here: the calls and how they are drawn (`illegal_orders` and its neighbours in `tests/integration/broker`).

Where Busway differs on purpose, a call answers `LEFT_OUT` on both brokers; the reason stands beside each, and in `docs/COMPATIBILITY.md`.
"""
