"""Clients that nobody here wrote, on a broker in a process of its own."""
