"""Compiled kernels: their sources, how they are built, and which of them fits this machine."""
