"""The manual's reference pages, made from the code: `python -m tools.reference [--check]`.

Here: a module for each subject: `settings`, `options`, `commands`, `endpoints`, `figures`, `api`.
Not here: docs/COMPATIBILITY.md (`tools.compatibility`).
"""
