"""How a handler is called: its arguments, its dependencies, and what the app puts around it.

`binding` says which parameter gets what, `depends` what a handler may ask for besides its record, `layers` what surrounds a call.
"""
