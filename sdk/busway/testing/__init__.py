"""Testing services on the real broker and registry, in the process of the test."""

from busway.testing.bus import DeadLetter, TestBus

__all__ = ["DeadLetter", "TestBus"]
