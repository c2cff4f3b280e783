"""Foreign clients judge the broker: what they read, write and commit while they and the broker are killed, as a history that is judged."""
