"""Brokers that replicate with each other, under a seed, with faults and checks while they run."""
