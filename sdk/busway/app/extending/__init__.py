"""The interface of extensions (tables, SQL, monitoring, tests), and calling them."""
