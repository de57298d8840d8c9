"""Where programs run. One file a device; `base` has what they share, `registry` the table of them."""
