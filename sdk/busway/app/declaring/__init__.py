"""What a service declares, before anything runs.

`declarations` has the decorators, with `table_declarations`; `routes` is what they leave behind: topics, handlers and options. `binding`
says which parameter of a handler gets what, `depends` what it may ask for besides its record, `lifespan` what an app opens,
`options` what its clients take.
"""
