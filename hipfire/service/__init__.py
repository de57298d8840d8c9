"""A canonical request in, text events out: queue, loaded model, link to the engine. Knows no HTTP."""
