"""By which tables, SQL, monitoring and tests watch and surround an app: the interface, and calling it."""
