"""Security of a client's connections: TLS and SASL."""
