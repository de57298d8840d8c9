"""A model as data: a flat list of ops over named buffers. Models emit it, devices run it."""
