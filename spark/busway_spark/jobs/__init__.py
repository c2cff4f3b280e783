"""Jobs: each a pure `transform(df) -> df` and a `main` that joins source, transform and sink."""
