"""One program for each Python client; `tests.interop.clients` says their arguments and what they print."""
