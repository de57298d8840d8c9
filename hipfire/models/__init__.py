"""Model architectures: each turns a Checkpoint into a Program. Knows no device."""
