"""Whole nodes and clients under a seed: workloads, faults, and what their histories must look like."""
