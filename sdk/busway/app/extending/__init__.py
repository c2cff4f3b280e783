"""The interface of extensions, and calling them."""
