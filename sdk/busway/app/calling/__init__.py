"""Calling a handler.

`binding` maps parameters, `depends` has `Depends` and `Context`, `layers` wraps the call.
"""
