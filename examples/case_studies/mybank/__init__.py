"""MyBank: alerts for large transactions that are in a PostgreSQL database already, within a second, by change data capture."""
