"""Parsing, normalising and comparing schemas away from the event loop, as their cost is up to the client."""
