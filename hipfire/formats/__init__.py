"""Model files of every format, opened as one `Checkpoint`."""
