"""Avro schemas: what they are, how they are read, checked and written back."""
