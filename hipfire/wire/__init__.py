"""What the server process and the engine process say to each other."""
