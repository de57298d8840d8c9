"""Settings: declared once in `schema`, read in layers that keep each value's origin."""
