"""Three nodes of Busway beside three of Apache Kafka 4.3.1, on one machine, with the same clients, in turns."""
