"""Avro schemas: tree, parsing, checks, canonical text."""
