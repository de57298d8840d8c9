"""hipfire: an OpenAI-compatible server for running language models on one's own machine."""

__version__ = "0.1.0"
