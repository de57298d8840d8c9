"""The engine process: token ids in, token ids out, on one device. Knows no text and no HTTP."""
