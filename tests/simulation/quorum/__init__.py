"""Three controllers of one cluster in a simulated world."""
