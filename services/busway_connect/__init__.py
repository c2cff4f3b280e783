"""Busway Connect: a connector runtime with Kafka Connect's REST API and config names."""
