"""What the demos and tests of the case studies share. What does not live here: a service's rules."""
