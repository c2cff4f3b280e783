"""Jobs: each a `transform(df) -> df` without IO and a `main` that only joins source, transform and sink."""
