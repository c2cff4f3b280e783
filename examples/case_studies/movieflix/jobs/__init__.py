"""Spark jobs of MovieFlix: each a pure `transform` and a thin `main`."""
