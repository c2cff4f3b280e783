"""Calling a handler: its arguments, its dependencies, and the layers around it.

`binding` maps parameters, `depends` has the markers for what is not in the record, `layers` wraps the call.
"""
