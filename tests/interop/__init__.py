"""Foreign clients, on a broker in a process of its own."""
