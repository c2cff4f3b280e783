"""What the demos and tests of the case studies share. Not here: a service's rules."""
