"""Parsing, normalising and comparing schemas: what costs as much as a client likes, away from the event loop."""
