"""What one hipfire process of a machine owes the next: the port, the pidfile, who runs, how it starts and ends."""
