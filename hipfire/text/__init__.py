"""Text in, token ids out, and back. Knows no HTTP, no engine and no model architecture."""
