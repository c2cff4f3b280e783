"""Connectors for tests."""
