"""One program for each Python client; `tests.interop.clients` says what they are told and what they print."""
