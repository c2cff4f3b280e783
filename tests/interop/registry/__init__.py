"""Clients that others wrote, on the registry."""
