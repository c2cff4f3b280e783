"""Programs that measure, and what they share. Nothing here is imported by the product."""
